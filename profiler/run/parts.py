"""Several processes of one `torchrun` into one capture.

Each rank stores a part beside the output, and one of them waits for the others' and joins them:
rank 0, or where ranks are being ended, so that rank 0 may be the one that was killed, whichever
comes first.
"""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.joining.captures import join_ranks
from gpuprof.profiler.run.ranks import Ranks

# Ranks end within seconds of each other, or one of them never does.
PATIENCE_S = 60.0
# torchrun ends all ranks where one has failed, and kills those that are left 30 s later.
PATIENCE_AFTER_A_FAILURE_S = 10.0


class Parts:
    """The captures of single ranks beside `output`, until they are joined."""

    def __init__(self, output: Path, ranks: Ranks) -> None:
        self._output = output
        self._ranks = ranks

    @property
    def own(self) -> Path:
        """Where this rank stores its part."""
        return self._part(self._ranks.rank)

    @contextmanager
    def joined(
        self, patience_s: float = PATIENCE_S, *, hurry: threading.Event | None = None
    ) -> Iterator[tuple[Capture, tuple[str, ...]] | None]:
        """Wait for the parts of all ranks and join them; removes them where the block succeeds.

        With the capture come warnings of the ranks that did not end in time, which is
        `patience_s`, and less once `hurry` is set. None where another rank joins the parts.
        """
        waiting = self._wait(patience_s, hurry or threading.Event())
        claim = self._beside("joining")
        try:
            claim.mkdir()
        except FileExistsError:
            yield None
            return
        try:
            found = [rank for rank in range(self._ranks.world_size) if self._part(rank).is_dir()]
            if self._ranks.rank not in found:
                yield None
                return
            warnings = tuple(
                f"rank {rank} did not end in the time that rank {self._ranks.rank} waited for it: "
                + ("only its profiled steps are here" if rank in found else "nothing of it is here")
                for rank in sorted(waiting)
            )
            yield join_ranks([storage.load(self._part(rank)) for rank in found]), warnings
            self._remove()
        finally:
            claim.rmdir()

    def _wait(self, patience_s: float, hurry: threading.Event) -> set[int]:
        """The ranks whose parts are not final when waiting ends."""
        waiting = set(range(self._ranks.world_size))
        deadline = time.monotonic() + patience_s
        hurried = False
        while waiting and time.monotonic() < deadline and self.own.is_dir():
            waiting -= {rank for rank in waiting if _is_final(self._part(rank))}
            if hurry.is_set() and not hurried:
                hurried = True
                deadline = min(deadline, time.monotonic() + PATIENCE_AFTER_A_FAILURE_S)
            if waiting:
                time.sleep(0.05)
        return waiting

    def _remove(self) -> None:
        """Remove the parts, also those that earlier attempts of this job left behind."""
        for attempt in range(self._ranks.attempt + 1):
            for rank in range(self._ranks.world_size):
                shutil.rmtree(self._part(rank, attempt), ignore_errors=True)

    def _part(self, rank: int, attempt: int | None = None) -> Path:
        return self._beside(f"rank{rank}.part", attempt)

    def _beside(self, what: str, attempt: int | None = None) -> Path:
        number = self._ranks.attempt if attempt is None else attempt
        return self._output.with_name(f".{self._output.name}.{self._ranks.job}-{number}.{what}")


def _is_final(part: Path) -> bool:
    """Whether the rank has ended; a part without an end is what it kept on its way."""
    with suppress(CaptureError):
        manifest = storage.load_manifest(part)
        return storage.load_process(part, manifest.ranks[0]).ended_ns is not None
    return False
