"""Programs of which it is known what their memory holds: does `gpuprof run` say so, to the byte?

    python tests/gpu/visit_memory.py [--output FOLDER]

A training step with Adam, one that runs out of memory in its first step, one that does after many,
and one that catches the error and goes on. Prints what was found beside what is true, and exits 1
where one differs. FOLDER keeps captures and what each printed.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpuprof.collectors import storage
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.memory_figures import MemoryUse

MODEL: Final = """
import torch
from torch import nn
torch.manual_seed(0)
cuda = torch.device("cuda")
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).to(cuda)
optimizer = torch.optim.Adam(model.parameters())

def step(rows):
    optimizer.zero_grad()
    model(torch.randn(rows, 1024, device=cuda)).square().mean().backward()
    optimizer.step()

def limit(megabytes):
    total = torch.cuda.get_device_properties(cuda).total_memory
    torch.cuda.set_per_process_memory_fraction(megabytes * 2**20 / total)
"""
PROGRAMS: Final[dict[str, str]] = {
    "training": """
for _ in range(800):
    step(4096)
""",
    "first step": """
limit(256)
step(100_000)
""",
    "later step": """
limit(512)
for _ in range(800):
    step(4096)
step(100_000)
""",
    "goes on": """
limit(512)
for _ in range(800):
    step(4096)
try:
    step(100_000)
except torch.OutOfMemoryError:
    torch.cuda.empty_cache()
step(4096)
""",
}
PROGRAMS["with lines"] = PROGRAMS["later step"]
OPTIONS: Final = {"with lines": ("--memory",)}
# All sizes are multiples of 512 bytes, to which blocks are rounded up.
PARAMETERS: Final = 4 * (1024 * 4096 + 4096 + 4096 * 1024 + 1024)


def training(use: MemoryUse) -> bool:
    """Parameters, gradients and state to the byte, and a peak that is that of the run."""
    (memory,) = use.devices
    if memory.peak is None:
        return False
    kinds = {each.kind: each.bytes for each in memory.peak.kinds}
    return (
        kinds.get("parameters") == PARAMETERS
        and kinds.get("optimizer state") == 2 * PARAMETERS
        and 0 < kinds.get("activations", 0)
        and sum(kinds.values()) == memory.peak.allocated_bytes
        and memory.peak.allocated_bytes == memory.run_peak_allocated_bytes
        and memory.fragmentation is not None
        and use.out_of_memory is None
    )


def out_of_memory(use: MemoryUse, *, fatal: bool, with_operators: bool) -> bool:
    """The failed allocation with what lived then."""
    failure = use.out_of_memory
    if failure is None or failure.live is None or failure.fragmentation is None:
        return False
    kinds = {each.kind: each.bytes for each in failure.live.kinds}
    operators = {each.operator for each in failure.live.holders if each.operator}
    return (
        failure.fatal == fatal
        and failure.asked_bytes >= 4 * 100_000 * 1024
        and ":" in failure.line
        and kinds.get("parameters") == PARAMETERS
        and bool(operators) == with_operators
        and failure.live.allocated_bytes == failure.fragmentation.allocated_bytes
        and bool(failure.advice)
    )


def with_lines(use: MemoryUse) -> bool:
    """As of a later step, and all that Python allocated has its line."""
    failure = use.out_of_memory
    if failure is None or failure.live is None:
        return False
    parameters = [each for each in failure.live.holders if each.kind == "parameters"]
    return out_of_memory(use, fatal=True, with_operators=False) and all(
        "with_lines.py:" in each.line for each in parameters
    )


CHECKS: Final[dict[str, Callable[[MemoryUse], bool]]] = {
    "training": training,
    "first step": lambda use: out_of_memory(use, fatal=True, with_operators=True),
    "later step": lambda use: out_of_memory(use, fatal=True, with_operators=False),
    "goes on": lambda use: out_of_memory(use, fatal=False, with_operators=False),
    "with lines": with_lines,
}


def main() -> int:
    """Run all programs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    folder: Path = parser.parse_args().output or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for name, program in PROGRAMS.items():
        stem = name.replace(" ", "_")
        script, capture = folder / f"{stem}.py", folder / f"{stem}.gpuprof"
        script.write_text(MODEL + program)
        command = [sys.executable, "-m", "gpuprof", "run", *OPTIONS.get(name, ())]
        command += ["-f", "-o", str(capture), str(script)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        (folder / f"{stem}.txt").write_text(done.stdout + done.stderr)
        use = analyze(storage.load(capture)).memory
        right = use is not None and CHECKS[name](use)
        wrong += not right
        print(f"{'right' if right else 'WRONG'}  {name}\n  {use}\n{done.stderr}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
