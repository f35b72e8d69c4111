"""Several processes of one `torchrun` into one capture.

Each rank stores a part beside the output; rank 0 waits for the others' and joins them.
"""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.joining.captures import join_ranks

# Ranks end within seconds of each other, or one of them never does.
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Ranks:
    """This process among those that `torchrun` started; rank 0 of 1 without it."""

    rank: int
    local_rank: int
    world_size: int

    @classmethod
    def from_environment(cls) -> "Ranks":
        """What `torchrun` says in RANK, LOCAL_RANK and WORLD_SIZE."""
        return cls(
            int(os.environ.get("RANK", "0")),
            int(os.environ.get("LOCAL_RANK", "0")),
            int(os.environ.get("WORLD_SIZE", "1")),
        )

    @property
    def alone(self) -> bool:
        """Whether there is no other process to join."""
        return self.world_size == 1

    def part(self, output: Path) -> Path:
        """Where this rank stores its own capture."""
        return output if self.alone else _part(output, self.rank)


def remove_stale_part(output: Path, ranks: Ranks) -> None:
    """Remove what this rank of an earlier, broken-off run left there."""
    if not ranks.alone:
        shutil.rmtree(ranks.part(output), ignore_errors=True)


def join_parts(output: Path, ranks: Ranks) -> tuple[Capture, tuple[str, ...]]:
    """Wait for the parts of all ranks and join them. Returns warnings of those that did not come.

    The parts are left in place until `remove_parts`.
    """
    waiting = set(range(ranks.world_size))
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while waiting and time.monotonic() < deadline:
        waiting -= {rank for rank in waiting if _is_final(_part(output, rank))}
        if waiting:
            time.sleep(0.05)
    found = [rank for rank in range(ranks.world_size) if _part(output, rank).is_dir()]
    warnings = tuple(
        f"rank {rank} did not end within {_PATIENCE_SECONDS:.0f} s of rank 0: "
        + ("only its profiled steps are here" if rank in found else "nothing of it is here")
        for rank in sorted(waiting)
    )
    return join_ranks([storage.load(_part(output, rank)) for rank in found]), warnings


def remove_parts(output: Path, ranks: Ranks) -> None:
    """Remove the parts that `join_parts` read."""
    for rank in range(ranks.world_size):
        shutil.rmtree(_part(output, rank), ignore_errors=True)


def _part(output: Path, rank: int) -> Path:
    return output.with_name(f".{output.name}.rank{rank}.part")


def _is_final(part: Path) -> bool:
    """Whether the rank has ended; a part without an end is what it kept on its way."""
    try:
        manifest = storage.load_manifest(part)
        return storage.load_process(part, manifest.ranks[0]).ended_ns is not None
    except CaptureError:
        return False
