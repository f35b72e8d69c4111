"""`gpuprof run --nsys` with the real thing: is the capture that of a run without it?

    python tests/gpu/visit_nsys.py [--output FOLDER]

A training runs under `gpuprof run`, under `gpuprof run --nsys`, and under an `nsys profile` that a
person has put around `gpuprof run`. Compared are step times, kernels of a step, operators of
kernels, FLOPs and the verdict. The report is analysed by itself, and Nsight Compute selects
launches by the step's range, where it may count. Exits 1 where one is wrong. nsys is
looked for as gpuprof does; what its importer needs has to be in LD_LIBRARY_PATH.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl

from gpuprof.collectors import storage
from gpuprof.collectors.joining.launch_matching import base_name
from gpuprof.collectors.tools import find_tool
from gpuprof.profiler.run.nsys_pass import OPTIONS

TRAINING = """
import os, time, torch, gpuprof
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, norm_first=True)
model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
x = torch.randn(8, 512, 1024, device="cuda", dtype=torch.bfloat16)
end, steps = time.time() + float(os.environ.get("SECONDS_OF_TRAINING", "6")), 0
while time.time() < end or steps < 30:
    optimizer.zero_grad()
    with gpuprof.region("forward"):
        loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
    steps += 1
torch.cuda.synchronize()
names = ("NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID",
         "NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "LD_PRELOAD")
import nvtx
print({name: os.environ[name].rsplit("/")[-1] for name in names if name in os.environ})
print("the package nvtx:", type(nvtx.get_domain("visit")).__name__, "steps:", steps)
"""

OPERATORS = "operators"
SAME_OPERATORS = 0.99
VARIABLES = """
import os, torch
from gpuprof.collectors.live.cupti_holders import cupti_holder
torch.ones(8, device="cuda").add_(1)
torch.cuda.synchronize()
print("holder:", cupti_holder())
parts = ("INJECTION", "NSIGHT", "NV_", "LD_PRELOAD")
print({name: value for name, value in os.environ.items() if any(part in name for part in parts)})
"""


def started(name: str, command: list[str], folder: Path, timeout_s: float = 100) -> str:
    """Run `command` and keep what it printed; raises where it fails."""
    began = time.time()
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    printed = done.stdout + done.stderr
    (folder / f"{name}.txt").write_text(printed)
    print(f"---- {name}: exit {done.returncode}, {time.time() - began:.1f} s", flush=True)
    if done.returncode:
        raise RuntimeError(printed[-1500:])
    return printed


def facts(path: Path) -> dict[str, Any]:
    """The figures of a capture that runs of one program have in common."""
    capture = storage.load(path)
    analysis = json.loads((path / "analysis.json").read_bytes())
    kernels = capture.kernels.filter(pl.col("step").is_not_null())
    steps = kernels["step"].n_unique() or 1
    spent = (pl.col("end_ns") - pl.col("start_ns")).sum()
    return {
        "timed ms": round((analysis["steps"]["median_ns"] or 0) / 1e6, 3),
        "steps profiled": analysis["steps"]["profiled"],
        "kernels a step": kernels.height / steps,
        "device ms a step": round(kernels.select(spent).item() / steps / 1e6, 3),
        "with an operator": round(kernels["op_id"].is_not_null().sum() / max(1, kernels.height), 4),
        "FLOP a step": (analysis["utilization"] or {}).get("model_flops"),
        "bound by": (analysis["bottleneck"] or {}).get("kind"),
        OPERATORS: Counter(
            (base_name(kernel), operator)
            for kernel, operator in kernels.join(
                capture.ops.select("op_id", operator="name"), on="op_id"
            )
            .select("name", "operator")
            .iter_rows()
        ),
        "ranges": Counter(capture.ranges["domain"].to_list()).most_common(6),
        "warnings": [list(process.warnings) for process in capture.processes],
    }


def compared(plain: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """What differs that must not."""
    wrong = [
        f"{what}: {other[what]}, without nsys {plain[what]}"
        for what in ("steps profiled", "kernels a step", "FLOP a step", "bound by")
        if plain[what] != other[what]
    ]
    # Tools spell arguments of templates differently.
    known = {kernel for kernel, _ in plain[OPERATORS]}
    alike = Counter({pair: n for pair, n in other[OPERATORS].items() if pair[0] in known})
    same = (plain[OPERATORS] & alike).total()
    print(f"{same} of {alike.total()} kernels of known names have the operator they had without")
    if same < SAME_OPERATORS * alike.total():
        wrong.append(f"{alike.total() - same} of {alike.total()} kernels have another operator")
    if other["with an operator"] < plain["with an operator"] - 0.01:
        wrong.append(f"only {other['with an operator']:.1%} of the kernels have an operator")
    if abs(other["device ms a step"] / plain["device ms a step"] - 1) > 0.05:
        wrong.append(
            f"device time {other['device ms a step']}, without {plain['device ms a step']}"
        )
    return wrong


def main() -> int:
    """Run everything; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="keep captures, reports and what was printed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.output or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "train.py").write_text(TRAINING)
        return visit(folder)


def visit(folder: Path) -> int:
    """Everything, in `folder`."""
    gpuprof = [sys.executable, "-m", "gpuprof"]
    nsys = find_tool("nsys")
    print("nsys:", nsys, "ncu:", find_tool("ncu"))
    wrong: list[str] = []
    plain: dict[str, Any] = {}

    def attempt(name: str, command: list[str], capture: str | None, timeout_s: float = 100) -> None:
        try:
            printed = started(name, command, folder, timeout_s)
            if capture is None:
                print(printed[-1500:])
                return
            found = facts(folder / capture)
        except (RuntimeError, subprocess.TimeoutExpired, OSError, KeyError, ValueError) as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
            print(f"WRONG {wrong[-1]}", flush=True)
            return
        told = {name: value for name, value in found.items() if name != OPERATORS}
        print(json.dumps(told, indent=1, default=str), flush=True)
        differing = [f"{name}: {one}" for one in compared(plain or found, found)]
        if not plain:
            plain.update(found)
        wrong.extend(differing)
        print("WRONG " + "; ".join(differing) if differing else f"ok {name}", flush=True)

    run = ["run", "-f", "--warmup", "20"]
    attempt("plain", [*gpuprof, *run, "-o", "plain.gpuprof", "train.py"], "plain.gpuprof")
    attempt("nsys", [*gpuprof, *run, "--nsys", "-o", "nsys.gpuprof", "train.py"], "nsys.gpuprof")
    attempt(
        "alone",
        [*gpuprof, "analyze", "-f", "-o", "alone.gpuprof", "nsys.gpuprof/report.nsys-rep"],
        None,
    )
    if nsys is not None:
        os.environ["SECONDS_OF_TRAINING"] = "4"
        around = [option for option in OPTIONS if not option.startswith("--capture-range")]
        attempt(
            "around",
            [
                *(nsys, "profile", *around, "--output=around"),
                *(*gpuprof, *run, "-o", "around.gpuprof", "train.py"),
            ],
            None,
        )
        attempt(
            "joined",
            [
                *(*gpuprof, "analyze", "-f", "-o", "joined.gpuprof"),
                *("around.gpuprof", "around.nsys-rep"),
            ],
            "joined.gpuprof",
        )
    ncu = find_tool("ncu")
    if ncu is not None:
        os.environ["SECONDS_OF_TRAINING"] = "1"
        try:
            # By which `cupti_holders` knows it.
            counted = [ncu, "--launch-count", "1", "--metrics", "gpu__time_duration.sum"]
            print(started("ncu_variables", [*counted, sys.executable, "-c", VARIABLES], folder))
        except (RuntimeError, subprocess.TimeoutExpired, OSError) as error:
            print(f"ncu_variables: {error}")
        for name, include in (("ncu_step", "gpuprof step"), ("ncu_region", "forward/")):
            command = [ncu, "--nvtx", "--nvtx-include", include, "--launch-count", "3", "--kill"]
            command += ["yes", "--metrics", "gpu__time_duration.sum", *gpuprof, "run", "-f", "-q"]
            try:
                # Without permission it says so, and that is no fault of ours.
                print(started(name, [*command, "-o", "ncu.gpuprof", "train.py"], folder)[-1500:])
            except (RuntimeError, subprocess.TimeoutExpired, OSError) as error:
                print(f"{name}: {error}")
    print("\n".join(["WRONG:", *wrong]) if wrong else "all right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
