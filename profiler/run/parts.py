"""Several processes of one job into one capture.

Each rank stores a part beside the output, and one of them waits for the others' and joins them:
the lowest that works in this folder, or where ranks are being ended, so that it may be the one that
was killed, whichever comes first. Hosts that share no folder each have a capture of their ranks.
"""

import shutil
import signal
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.joining.captures import join_ranks
from gpuprof.collectors.manifest import ProcessInfo
from gpuprof.profiler.run.rank_marks import Death, RankMarks
from gpuprof.profiler.run.ranks import Ranks

# Ranks end within seconds of each other, or one of them never does.
PATIENCE_S = 60.0
# torchrun ends all ranks where one has failed, and kills those that are left 30 s later.
PATIENCE_AFTER_A_FAILURE_S = 10.0
# All ranks began when the program did: one that is not seen for so long works in another folder.
PATIENCE_FOR_MARKS_S = 10.0


@dataclass(frozen=True)
class Joined:
    """The ranks that work in one folder, as one capture."""

    capture: Capture
    # Those that work in another one.
    elsewhere: tuple[int, ...]


class Parts:
    """The captures of single ranks beside `output`, until they are joined."""

    def __init__(self, output: Path, ranks: Ranks) -> None:
        self._ranks = ranks
        self._marks = RankMarks(output, ranks)

    @property
    def own(self) -> Path:
        """Where this rank stores its part."""
        return self._part(self._ranks.rank)

    def begin(self) -> None:
        """Say that this rank works in this folder. Raises `OSError`."""
        self._marks.begin()

    @contextmanager
    def joined(
        self,
        patience_s: float = PATIENCE_S,
        *,
        hurry: threading.Event | None = None,
        first_come: bool = False,
        marks_patience_s: float = PATIENCE_FOR_MARKS_S,
    ) -> Iterator[Joined | None]:
        """Wait for the parts of all ranks and join them; removes them where the block succeeds.

        Waits `patience_s`, and less once `hurry` is set, for ranks that were seen here. None where
        another rank joins the parts: one with a lower number, or with `first_come` one that was
        quicker. What is wrong with single ranks stands in the capture's warnings.
        """
        hurry = hurry or threading.Event()
        here = self._here(0.0 if hurry.is_set() else marks_patience_s)
        if self._ranks.rank != min(here) and not first_come:
            yield None
            return
        late = self._wait(here, patience_s, hurry)
        claim = self._marks.beside("joining")
        try:
            claim.mkdir()
        except FileExistsError:
            yield None
            return
        try:
            found = [rank for rank in sorted(here) if self._part(rank).is_dir()]
            if self._ranks.rank not in found:
                yield None
                return
            parts = [storage.load(self._part(rank)) for rank in found]
            deaths = {rank: self._marks.death(rank) for rank in sorted(late)}
            joined = join_ranks([_with_end(part, deaths) for part in parts])
            sentences = [
                *_failures(joined.processes),
                *(self._late(rank, deaths[rank], stored=rank in found) for rank in sorted(late)),
            ]
            elsewhere = sorted(set(range(self._ranks.world_size)) - here)
            yield Joined(_warned(joined, sentences), tuple(elsewhere))
            self._remove(here)
        finally:
            claim.rmdir()

    def _here(self, patience_s: float) -> set[int]:
        """The ranks that work in this folder."""
        deadline = time.monotonic() + patience_s
        while True:
            here = self._marks.visible() | {self._ranks.rank}
            # A rank that another one waits for does not need to know of those above it.
            complete = len(here) == self._ranks.world_size or 0 in here - {self._ranks.rank}
            if complete or time.monotonic() >= deadline:
                return here
            time.sleep(0.05)

    def _wait(self, here: Collection[int], patience_s: float, hurry: threading.Event) -> set[int]:
        """Those of the ranks `here` whose parts are not final when waiting ends."""
        late, waiting = set(here), set(here)
        deadline = time.monotonic() + patience_s
        hurried = False
        while waiting and time.monotonic() < deadline and self.own.is_dir():
            late -= {rank for rank in waiting if _is_final(self._part(rank))}
            waiting = {rank for rank in late if self._marks.death(rank) is None}
            if hurry.is_set() and not hurried:
                hurried = True
                deadline = min(deadline, time.monotonic() + PATIENCE_AFTER_A_FAILURE_S)
            if waiting:
                time.sleep(0.05)
        return late

    def _late(self, rank: int, death: Death | None, *, stored: bool) -> str:
        """A sentence about a rank without a final part."""
        if death is None:
            what = f"did not end in the time that rank {self._ranks.rank} waited for it"
        else:
            what = _death_words(death)
        kept = "only its profiled steps are here" if stored else "nothing of it is here"
        return f"rank {rank} {what}: {kept}"

    def _remove(self, ranks: Collection[int]) -> None:
        """Remove the parts, also those that earlier attempts of this job left behind."""
        for attempt in range(self._ranks.attempt + 1):
            for rank in ranks:
                shutil.rmtree(self._part(rank, attempt), ignore_errors=True)
        self._marks.remove(ranks)

    def _part(self, rank: int, attempt: int | None = None) -> Path:
        return self._marks.beside(f"rank{rank}.part", attempt)


def _is_final(part: Path) -> bool:
    """Whether the rank has ended; a part without an end is what it kept on its way."""
    with suppress(CaptureError):
        manifest = storage.load_manifest(part)
        return storage.load_process(part, manifest.ranks[0]).ended_ns is not None
    return False


def _with_end(part: Capture, deaths: dict[int, Death | None]) -> Capture:
    """`part` with how its process ended, where something else than that has seen it."""
    (process,) = part.processes
    death = deaths.get(process.rank)
    if death is None or process.ended_ns is not None:
        return part
    # As subprocess has it: a signal is its number below 0.
    code = death.exit_code if death.signal is None else -death.signal
    ended = msgspec.structs.replace(process, ending="killed", exit_code=code)
    return part.with_processes((ended,))


def _failures(processes: Sequence[ProcessInfo]) -> list[str]:
    """A sentence about each rank that failed by itself, where not all of them did."""
    failed = [one for one in processes if one.ending == "exception" or _left_with_a_code(one)]
    if len(failed) == len(processes):
        # As each rank says of itself.
        return []
    return [
        f"rank {one.rank} ended with "
        + (one.exceptions[0] if one.exceptions else "an error")
        + ("" if one.exit_code is None else f" (exit code {one.exit_code})")
        for one in sorted(failed, key=lambda one: one.ended_ns or 0)
    ]


def _left_with_a_code(process: ProcessInfo) -> bool:
    return process.ending in ("finished", "exit") and process.exit_code not in (None, 0)


def _death_words(death: Death) -> str:
    if death.signal is not None:
        try:
            name = signal.Signals(death.signal).name
        except ValueError:
            name = f"signal {death.signal}"
        return f"was killed by {name}"
    if death.exit_code is not None:
        return f"ended with exit code {death.exit_code}, past all that ends a Python program"
    return "ended without a word, killed or crashed"


def _warned(capture: Capture, sentences: Sequence[str]) -> Capture:
    first, *others = capture.processes
    first = msgspec.structs.replace(first, warnings=(*first.warnings, *sentences))
    return capture.with_processes((first, *others))
