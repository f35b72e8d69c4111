"""Run each program of examples/trainers under gpuprof, and print what gpuprof says of it.

    PYTHON scripts/try_trainers.py [PROGRAM...]

PYTHON is an interpreter that has gpuprof and the trainers' packages. Those too large for CI (Ray,
DeepSpeed, timm with torchvision) are tried so. A package that is missing, or fails to import, is
told with its error. Exits with 1 where a program fails.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import gpuprof
from gpuprof.reports.sections.headline import headline
from gpuprof.reports.step_unit import step_unit
from gpuprof.reports.utilization import headline_fact
from gpuprof.roofline.analysis import Analysis

PROGRAMS = Path(__file__).parents[1] / "examples" / "trainers"
RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
# Waiting for ever is one way to fail.
MOST_SECONDS = 300


@dataclass(frozen=True)
class Trial:
    """One way to run one program."""

    program: str
    # The import of `module` shows that the trainer is there; `distribution` has the version.
    module: str
    distribution: str
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    # Whether the program opens gpuprof.profile itself, at the path that it is given.
    profiles_itself: bool = False


TRIALS = (
    Trial("hf_trainer.py", "transformers.trainer", "transformers"),
    Trial("hf_trainer.py", "transformers.trainer", "transformers", ("2",)),
    Trial("accelerate_loop.py", "accelerate", "accelerate"),
    Trial("lightning_fit.py", "lightning", "lightning"),
    *(
        Trial("deepspeed_zero.py", "deepspeed", "deepspeed", (stage,), launcher=RANKS)
        for stage in ("1", "2", "3")
    ),
    Trial("fsdp2_loop.py", "torch", "torch", ("2",), launcher=RANKS),
    Trial("embeddings_and_dense.py", "torch", "torch"),
    Trial("timm_loop.py", "timm", "timm"),
    Trial("diffusers_sampling.py", "diffusers", "diffusers"),
    Trial("serving_loop.py", "torch", "torch", options=("--step-range", "execute model")),
    Trial("ray_train.py", "ray.train.torch", "ray", profiles_itself=True),
)


def import_error(module: str) -> str:
    """Why `module` cannot be imported, in one line; "" where it can."""
    done = subprocess.run(
        [sys.executable, "-c", f"import {module}"], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def run(trial: Trial, output: Path) -> Analysis:
    """What gpuprof says of a run. Raises `RuntimeError` with the end of stderr where it fails."""
    program = str(PROGRAMS / trial.program)
    command = [*trial.launcher, "-m", "gpuprof", "run", "-q", "-o", str(output), *trial.options]
    if trial.profiles_itself:
        command, arguments = [], (str(output),)
    else:
        arguments = trial.arguments
    try:
        done = subprocess.run(
            [sys.executable, *command, program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=output.parent,
            timeout=MOST_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"did not end in {MOST_SECONDS} s") from error
    if done.returncode or not output.is_dir():
        raise RuntimeError(done.stderr.strip()[-2000:] or f"exit code {done.returncode}")
    return gpuprof.analyze(gpuprof.load(output))


def row(trial: Trial, analysis: Analysis) -> Sequence[str]:
    steps = analysis.steps
    mfu = headline_fact(analysis)
    largest = next((point for point in analysis.ops if point.source is not None), None)
    line = "" if largest is None or largest.source is None else str(largest.source.line)
    return (
        " ".join((trial.program, *trial.arguments, *trial.options)),
        f"{trial.distribution} {version(trial.distribution)}",
        steps.found_by,
        "" if steps.content is None else step_unit(steps.content),
        f"{steps.warmup}, {steps.timed}, {steps.profiled}",
        f"{mfu.label} {mfu.value}",
        f"{analysis.coverage.with_flops:.1%}",
        line,
        headline(analysis).sentence,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    wanted = parser.parse_args().programs
    titles = ("program", "package", "steps", "a step", "warm-up, timed, profiled", "utilization")
    titles = (*titles, "FLOPs known", "line of the largest operator", "says")
    print(f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}", sep="\n")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, trial in enumerate(TRIALS):
            if wanted and trial.program not in wanted:
                continue
            name = " ".join((trial.program, *trial.arguments))
            missing = import_error(trial.module)
            if missing:
                print(f"| {name} | {trial.distribution} | not tried: {missing} |", flush=True)
                continue
            try:
                cells = row(trial, run(trial, Path(folder, f"{number}.gpuprof")))
                print(f"| {' | '.join(cells)} |", flush=True)
            except (RuntimeError, gpuprof.GpuprofError, PackageNotFoundError) as error:
                failed = 1
                print(f"| {name} | {trial.distribution} | failed: {error} |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
