"""Trainings on two GPUs: step, exposed and all communication against the program's own events.

    python tests/gpu/visit_two_ranks.py [--output FOLDER] [--ranks 2] [NAME ...]

Runs two_ranks_job.py under torchrun and `gpuprof run`: data parallel, sharded and tensor parallel,
and data parallel with faults of the last rank. Each rank's figures are compared with what the job
measured itself in the same steps, the timed and the profiled ones; a fault must be found with its
rank and line, and where there is none nobody may be called late. Exits 1 where something differs.

NCCL's own handle times a collective from an event on its stream, which passes when the kernels that
the message comes from have ended. A collective beside products then waits until one of these leaves
multiprocessors to it: on two H200 about a third of DDP's buckets waited 0.1 or 0.6 ms, 1 to 2 ms a
step. No kernel of NCCL's runs meanwhile, so that time is added here.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from bisect import bisect_left
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

import polars as pl

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.classes import COMMUNICATION, OTHER_RANK
from gpuprof.roofline.work.attribution import attribute, launch_of_kernels

JOB: Final = Path(__file__).with_name("two_ranks_job.py")
PROGRAMS: Final = {
    "ddp": ("ddp", ""),
    "fsdp": ("fsdp", ""),
    "tensor": ("tensor", ""),
    "ddp-work": ("ddp", "work"),
    "ddp-loader": ("ddp", "loader"),
    "ddp-sleep": ("ddp", "sleep"),
    "ddp-stream": ("ddp", "stream"),
    "tensor-work": ("tensor", "work"),
}
PHASES: Final = ("timed", "profiled")
# Of the step.
TOLERANCE: Final = 0.05


def recorded(name: str, ranks: int, output: Path) -> Path:
    """The capture of one program. Raises `RuntimeError` where it fails."""
    parallelism, fault = PROGRAMS[name]
    own = output / name
    own.mkdir(exist_ok=True)
    capture = output / f"{name}.gpuprof"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["-m", "gpuprof", "run", "--force", "-o", str(capture), str(JOB), parallelism]
    done = subprocess.run(
        [*command, str(own), *(("--fault", fault) if fault else ())],
        capture_output=True,
        text=True,
        timeout=150,
        env={**os.environ, "OMP_NUM_THREADS": "4", "TORCH_NCCL_ENABLE_TIMING": "1"},
        check=False,
    )
    (output / f"{name}.txt").write_text(done.stdout + done.stderr)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return capture


def held_up_ms(capture: Capture, rank: int) -> float:
    """How long collectives of one profiled step wait for multiprocessors, once they could run.

    That is once the collective before it and what the host launched last before it have ended.
    """
    own = attribute(capture.rank(rank))
    kernels = own.kernels.with_columns(launch_of_kernels(own)["launch_ns"])
    kernels = kernels.drop_nulls(("step", "launch_ns")).sort("launch_ns")
    communicates = pl.col("kind") == "collective"
    before_ns = pl.when(~communicates).then("end_ns").forward_fill()
    calls = kernels.with_columns(ready_ns=before_ns).filter(communicates)
    ready_ns = pl.max_horizontal("ready_ns", "launch_ns", pl.col("end_ns").shift(1).over("step"))
    held_ns = calls.select((pl.col("start_ns") - ready_ns).clip(0).sum()).item()
    return float(held_ns / max(1, calls["step"].n_unique()) / 1e6)


def figures(analysis: Analysis, capture: Capture) -> dict[str, float]:
    """Of one rank, in milliseconds, as `own_figures` names them."""
    step_ns, exposed, split = analysis.steps.length_ns, analysis.exposed, analysis.split
    profiled = len(analysis.ranks.ranks[0].steps) if analysis.ranks else 0
    assert step_ns is not None
    assert exposed is not None
    assert split is not None
    of_all_ns = sum(each.device_ns for each in analysis.transfers if each.kind == COMMUNICATION)
    return {
        "step_ms": step_ns / 1e6,
        "exposed_ms": sum(map(split.nanoseconds, (COMMUNICATION, OTHER_RANK))) / 1e6,
        "exposed_while_profiled_ms": exposed.communication_ns / 1e6,
        "communication_ms": of_all_ns / profiled / 1e6 + held_up_ms(capture, analysis.rank),
    }


def own_figures(own: dict[str, Any], capture: Capture, rank: int) -> dict[str, float]:
    """The same by the job's events: of the timed steps, the last two of the profiled ones.

    `communication_ms` as NCCL's handles count it. FSDP's exposed time is what its steps are longer
    than those of a rank alone, and nobody times its collectives.
    """
    timed, profiled = (own_steps(own["steps"], capture, rank, phase) for phase in PHASES)
    step_ms = median(each["step_ms"] for each in timed)
    if "alone_ms" in own:
        profiled_ms = mean(each["step_ms"] for each in profiled)
        return {
            "step_ms": step_ms,
            "exposed_ms": step_ms - own["alone_ms"],
            "exposed_while_profiled_ms": profiled_ms - own["alone_ms"],
        }
    return {
        "step_ms": step_ms,
        "exposed_ms": mean(each["exposed_ms"] for each in timed),
        "exposed_while_profiled_ms": mean(each["exposed_ms"] for each in profiled),
        "communication_ms": mean(each["communication_ms"] for each in profiled),
    }


def own_steps(
    steps: list[dict[str, float]], capture: Capture, rank: int, phase: str
) -> list[dict[str, float]]:
    """The job's own steps that are those of the capture: each ended right after gpuprof's did."""
    of_phase = capture.steps.filter((pl.col("rank") == rank) & (pl.col("phase") == phase))
    ends_ns = [each["host_end_ns"] for each in steps]
    return [steps[bisect_left(ends_ns, end_ns)] for end_ns in of_phase["end_ns"]]


def differing(rank: int, found: dict[str, float], own: dict[str, float]) -> list[str]:
    """What of one rank is not as the program measured it."""
    allowed = TOLERANCE * own["step_ms"]
    return [
        f"rank {rank}: {key} {found[key]:.3f}, by events {value:.3f}"
        for key, value in own.items()
        if abs(found[key] - value) > allowed
    ]


def misnamed(name: str, ranks: int, analysis: Analysis) -> list[str]:
    """What is wrong with who is called late, and why."""
    late = analysis.ranks.stragglers if analysis.ranks else ()
    fault = PROGRAMS[name][1]
    if not fault:
        return [f"rank {each.rank} is called late" for each in late]
    if not late:
        return ["nobody is called late"]
    lines = JOB.read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if line.endswith(f"# fault: {fault}"))
    cause = late[0].causes[0] if late[0].causes else None
    wrong = [] if late[0].rank == ranks - 1 else [f"rank {late[0].rank} is called late"]
    if cause is None or (fault != "loader" and not cause.place.endswith(f":{number}")):
        wrong.append(f"the cause is {cause}, not line {number}")
    if cause is not None and fault == "loader" and "loader" not in cause.what.lower():
        wrong.append(f"the cause is {cause}, not the loader")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(PROGRAMS), metavar="NAME")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.names:
            try:
                capture = storage.load(recorded(name, options.ranks, folder))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"WRONG  {name}: {error}", flush=True)
                failed = 1
                continue
            wrong = []
            for rank in range(options.ranks):
                analysis = analyze(capture, rank=rank)
                found = figures(analysis, capture)
                measured = json.loads((folder / name / f"own.{rank}.json").read_text())
                own = own_figures(measured, capture, rank)
                wrong += differing(rank, found, own)
                rounded = [
                    {key: round(value, 3) for key, value in each.items()} for each in (found, own)
                ]
                print(f"  {name} rank {rank}: found {rounded[0]}, own {rounded[1]}")
                print(f"    {analysis.bottleneck.kind}: {analysis.bottleneck.evidence}")
                if rank == 0:
                    wrong += misnamed(name, options.ranks, analysis)
                    for late in analysis.ranks.stragglers if analysis.ranks else ():
                        cause = late.causes[0] if late.causes else None
                        print(f"    rank {late.rank} late {late.per_step_ns / 1e6:.3f} ms: {cause}")
            print(f"{'WRONG' if wrong else 'ok':6} {name} {'; '.join(wrong)}", flush=True)
            failed |= bool(wrong)
    return failed


if __name__ == "__main__":
    sys.exit(main())
