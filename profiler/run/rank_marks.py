"""Small files by which the ranks of one job know of each other where they store their parts.

A rank leaves a mark in the folder of the output when it begins. Ranks that do not share the folder
do not see each other's. Where its process ends without having stored its capture, what stores for
it adds how that ended. Nothing heavy is imported here.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpuprof.profiler.run.ranks import Ranks


class Death(msgspec.Struct, frozen=True):
    """How a process ended that stored nothing at its end; None where that is unknown."""

    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True)
class RankMarks:
    """The marks of the ranks of one attempt of a job, beside `output`."""

    output: Path
    ranks: Ranks

    def beside(self, what: str, attempt: int | None = None) -> Path:
        """A hidden path beside the output that no other job or attempt has."""
        number = self.ranks.attempt if attempt is None else attempt
        return self.output.with_name(f".{self.output.name}.{self.ranks.job}-{number}.{what}")

    def begin(self) -> None:
        """Say that this rank works here. Raises `OSError`."""
        self.output.parent.mkdir(parents=True, exist_ok=True)
        self._begun(self.ranks.rank).touch()

    def visible(self) -> set[int]:
        """The ranks that said so."""
        # Listing makes a network file system look again.
        with suppress(OSError):
            names = set(os.listdir(self.output.parent))
            return {
                rank for rank in range(self.ranks.world_size) if self._begun(rank).name in names
            }
        return set()

    def write_death(self, death: Death) -> None:
        """Say how this rank's process ended. Raises `OSError`."""
        path = self._death(self.ranks.rank)
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_bytes(msgspec.json.encode(death))
        temporary.replace(path)

    def death(self, rank: int) -> Death | None:
        """How the process of `rank` ended, where it stored nothing at its end; else None."""
        with suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(self._death(rank).read_bytes(), type=Death)
        return None

    def remove(self, ranks: Iterable[int]) -> None:
        """Remove the marks of `ranks`, also those of earlier attempts of this job."""
        for rank in ranks:
            for attempt in range(self.ranks.attempt + 1):
                for path in (self._begun(rank, attempt), self._death(rank, attempt)):
                    path.unlink(missing_ok=True)

    def _begun(self, rank: int, attempt: int | None = None) -> Path:
        return self.beside(f"rank{rank}.begun", attempt)

    def _death(self, rank: int, attempt: int | None = None) -> Path:
        return self.beside(f"rank{rank}.died", attempt)
