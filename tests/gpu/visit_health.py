"""A card's health, settings that cost, and every step of a run: what does gpuprof say of them?

    python tests/gpu/visit_health.py [--output FOLDER]

Prints `gpuprof doctor`, and runs small programs under `gpuprof run` as a person would: a loop with
stalls of known kinds under `--watch`, products of float32 with and without NVIDIA_TF32_OVERRIDE=0,
and one with CUDA_LAUNCH_BLOCKING. Compared with what the programs time themselves: percentiles of
the steps, what differed in the slow ones, and gains. Last comes what a mark costs a step. Exits 1
where one is wrong.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WATCHED = """
import gc, json, time, torch
from torch.utils.data import DataLoader
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
model = torch.nn.Linear(4096, 4096, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
class Samples(torch.utils.data.Dataset):
    def __len__(self): return 4000
    def __getitem__(self, index):
        if index % 400 == 399:
            time.sleep(0.08)
        return torch.zeros(1)
junk = [[number] for number in range(1_000_000)]
gc.disable()
marks = []
for number, batch in enumerate(DataLoader(Samples(), batch_size=1)):
    for _ in range(12):
        loss = model(a).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if number % 250 == 249:
        gc.collect()
    if number % 700 == 699:
        time.sleep(0.15)
    marks.append(torch.cuda.Event(enable_timing=True))
    marks[-1].record()
torch.cuda.synchronize()
lengths = [one.elapsed_time(two) for one, two in zip(marks, marks[1:])]
print(json.dumps(sorted(lengths[len(lengths) // 2:])))
"""

FLOAT32 = """
import torch
a, b = (torch.randn(4096, 4096, device="cuda") for _ in range(2))
torch.backends.cuda.matmul.allow_tf32 = True
import gpuprof
for _ in range(900):
    for _ in range(2):
        a @ b
    gpuprof.step()
torch.cuda.synchronize()
"""


def run(folder: Path, name: str, source: str, *options: str, **variables: str) -> tuple[Any, str]:
    """The analysis of a program under `gpuprof run`, and what it printed itself."""
    (folder / f"{name}.py").write_text(source)
    command = [sys.executable, "-m", "gpuprof", "run", "-f", *options]
    done = subprocess.run(
        [*command, "-o", f"{name}.gpuprof", f"{name}.py"],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    print(f"--- {name}\n{done.stderr}")
    return json.loads((folder / f"{name}.gpuprof" / "analysis.json").read_bytes()), done.stdout


def check(what: str, right: bool) -> bool:
    """Print one line of the result."""
    print(f"{'right' if right else 'WRONG'}  {what}")
    return right


def watched(folder: Path) -> list[bool]:
    """Percentiles beside the program's own events, and each kind of stall."""
    analysis, printed = run(folder, "watched", WATCHED, "--watch")
    slow, own_ms = analysis["slow_steps"], json.loads(printed.splitlines()[-1])
    causes = {cause["cause"] for cause in slow["causes"]}
    by_fraction = {each["fraction"]: each["length_ns"] / 1e6 for each in slow["percentiles"]}
    print(f"causes {slow['causes']}\nmark {slow['watching_fraction']:.2%} of the host")
    results = [check("by CUDA events", slow["clock"] == "CUDA events")]
    for fraction in (0.5, 0.95):
        true_ms = own_ms[round(fraction * (len(own_ms) - 1))]
        said = f"P{fraction * 100:.0f} {by_fraction[fraction]:.3f} ms, its own {true_ms:.3f} ms"
        results.append(check(said, abs(by_fraction[fraction] / true_ms - 1) < 0.05))
    kinds = ("garbage collection", "data loader", "blocked on the host")
    results += [check(f"{cause} is a cause", cause in causes) for cause in kinds]
    results.append(check("clocks over the run", any(p["sm_clock_mhz"] for p in slow["time_line"])))
    results.append(check("under 1 % of the host", slow["watching_fraction"] < 0.01))
    return results


def settings(folder: Path) -> list[bool]:
    """What forbids TF32 is named, with the gain of allowing it; blocking is a warning."""
    off, _ = run(folder, "float32", FLOAT32, NVIDIA_TF32_OVERRIDE="0")
    on, _ = run(folder, "tf32", FLOAT32)
    blocking, _ = run(folder, "blocking", FLOAT32, CUDA_LAUNCH_BLOCKING="1")
    named = {each["name"]: each for each in off["settings"]["costly"]}
    real_ns = off["steps"]["median_ns"] - on["steps"]["median_ns"]
    said_ns = named.get("NVIDIA_TF32_OVERRIDE", {}).get("gain_ns", 0)
    gains = f"{said_ns / 1e6:.3f} ms, really {real_ns / 1e6:.3f}"
    health = off["health"]
    print(f"health {json.dumps(health)}")
    return [
        check(f"TF32 is forbidden: to gain at most {gains}", said_ns >= 0.95 * real_ns),
        check("where it is allowed nothing is named", not on["settings"]["costly"]),
        check(
            "CUDA_LAUNCH_BLOCKING is a warning",
            any(each["falsifies"] for each in blocking["settings"]["costly"]),
        ),
        check("the link in use is known", off["device_state"]["pcie_generation"] is not None),
        check(
            "the driver told of its health",
            health is not None and health["power_limit_milliwatts"] is not None,
        ),
    ]


def main() -> int:
    """Print everything; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    folder = arguments.output or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "gpuprof", "doctor"], check=True)
    results = [*watched(folder), *settings(folder)]
    benchmark = Path(__file__).parents[2] / "benchmarks" / "watch_cost.py"
    for step_ms in ("2", "10"):
        subprocess.run([sys.executable, str(benchmark), "--step-ms", step_ms], check=True)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
