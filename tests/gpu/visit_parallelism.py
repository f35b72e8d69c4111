"""Trainings on four ranks whose parallelism is known: is it named, with its bubble and its bytes?

    python tests/gpu/visit_parallelism.py [--output FOLDER] [--ranks 4] [NAME ...]

Runs examples/ranks under torchrun and `gpuprof run`, prints what is found of each, and exits 1
where that is not what the program does. With NCCL on GPUs, else with gloo. What fewer ranks do not
show is left out, and said: two share the tokens of `experts` evenly, and two stages exchange every
other message in a way that does not tell micro-batches apart.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch

from gpuprof.profiler.captures import load_analysis
from gpuprof.roofline.parallelism_figures import GroupExchanges, Parallelism, Pipelining

EXAMPLES = Path(__file__).parents[2] / "examples" / "ranks"
# examples/ranks/train.py: three layers with two products and their biases, in float32.
LAYER_BYTES: Final = 4 * (2 * 256 * 512 + 512 + 256)
# A bubble of stages that are alike may be longer by what messages take.
_LONGER: Final = 1.5
PROGRAMS: Final = {
    "ddp": ("train.py", "ddp"),
    "fsdp": ("train.py", "fsdp"),
    "tensor": ("train.py", "tensor"),
    "pipeline": ("pipeline.py",),
    "interleaved": ("pipeline.py", "--chunks", "2"),
    "slow-stage": ("pipeline.py", "--slow-stage", "2"),
    "experts": ("experts.py",),
}


# The fewest ranks that show what a program is about; two show that of the others.
FEWEST: Final = {"pipeline": 3, "interleaved": 3, "slow-stage": 3, "experts": 3}


def recorded(name: str, ranks: int, output: Path) -> Parallelism | None:
    """What gpuprof finds of one program."""
    capture = output / f"{name}.gpuprof"
    script, *words = PROGRAMS[name]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["-m", "gpuprof", "run", "--force", "-o", str(capture)]
    done = subprocess.run(
        [*command, str(EXAMPLES / script), *words],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    (output / f"{name}.txt").write_text(done.stdout + done.stderr)
    if done.returncode:
        print(f"{name}: exit code {done.returncode}, {name}.txt has why")
    return load_analysis(capture).parallelism if capture.is_dir() else None


def ddp(found: Parallelism, ranks: int) -> bool:
    sizes = [bucket.message_bytes or 0 for data in found.data for bucket in data.buckets]
    return sum(sizes) == 3 * LAYER_BYTES and found.data[0].ranks == ranks


def fsdp(found: Parallelism, ranks: int) -> bool:
    return bytes_by_pass(found.sharded) == {
        ("forward", "all-gather"): 3 * LAYER_BYTES,
        ("backward", "all-gather"): 3 * LAYER_BYTES,
        ("backward", "reduce-scatter"): 3 * LAYER_BYTES,
    }


def tensor(found: Parallelism, ranks: int) -> bool:
    rows = 64 * 256 * 4
    expected = {("forward", "all-reduce"): 3 * rows, ("backward", "all-reduce"): 2 * rows}
    return bytes_by_pass(found.tensor) == expected and found.tensor[0].layers == 3


def bytes_by_pass(groups: tuple[GroupExchanges, ...]) -> dict[tuple[str, str], int | None]:
    return {
        (each.phase, each.collective): each.total_bytes
        for group in groups
        for each in group.exchanges
    }


def stages(found: Parallelism, chunks: int) -> Pipelining | None:
    pipeline = found.pipeline
    known = pipeline is not None and (pipeline.micro_batches, pipeline.chunks) == (8, chunks)
    return pipeline if known else None


def even_stages(chunks: int) -> Callable[[Parallelism, int], bool]:
    def check(found: Parallelism, ranks: int) -> bool:
        pipeline = stages(found, chunks)
        if pipeline is None or pipeline.bubble is None or pipeline.least_bubble is None:
            return False
        # Ranks that share the cores of a host wait for those.
        return not torch.cuda.is_available() or pipeline.bubble < _LONGER * pipeline.least_bubble

    return check


def slow_stage(found: Parallelism, ranks: int) -> bool:
    pipeline = stages(found, 1)
    return pipeline is not None and 2 == max(pipeline.stages, key=lambda each: each.working_ns).rank


def experts(found: Parallelism, ranks: int) -> bool:
    # Half of the tokens are the second rank's.
    (group,) = found.experts
    sent = [rank.total_bytes or 0 for rank in group.ranks]
    return sent.index(max(sent)) == 1 and group.calls == 8 and (group.imbalance or 0) > 1.3


CHECKS: Final[dict[str, Callable[[Parallelism, int], bool]]] = {
    "ddp": ddp,
    "fsdp": fsdp,
    "tensor": tensor,
    "pipeline": even_stages(1),
    "interleaved": even_stages(2),
    "slow-stage": slow_stage,
    "experts": experts,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--ranks", type=int, default=4)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    wrong = []
    for name in arguments.names or PROGRAMS:
        if arguments.ranks < FEWEST.get(name, 2):
            print(f"{name}: not shown by {arguments.ranks} ranks, {FEWEST[name]} are needed")
            continue
        found = recorded(name, arguments.ranks, arguments.output)
        print(f"{name}: {found}", flush=True)
        if found is not None and found.pipeline is not None:
            print(f"  bubble {found.pipeline.bubble}, least {found.pipeline.least_bubble}")
        if found is None or not CHECKS[name](found, arguments.ranks):
            wrong.append(name)
    print("not as the program does:", ", ".join(wrong) or "none")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
