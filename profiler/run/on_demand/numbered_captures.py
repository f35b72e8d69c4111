"""The captures of one run: numbered names beside the requested one, and at most so many of them."""

from collections import deque
from pathlib import Path

from gpuprof.collectors import storage
from gpuprof.profiler.run.output import CaptureOutput


class NumberedCaptures:
    """`NAME.1.gpuprof`, `NAME.2.gpuprof`, ... of which the newest are kept."""

    def __init__(self, requested: Path, most: int) -> None:
        self._stem = Path(requested.parent, requested.name.removesuffix(storage.SUFFIX))
        self._most = most
        self._number = 0
        self._kept: deque[CaptureOutput] = deque()
        self.stored = 0

    def next(self) -> CaptureOutput:
        """Where the next one goes; what lies there already is passed over."""
        while True:
            self._number += 1
            path = self._stem.with_name(f"{self._stem.name}.{self._number}{storage.SUFFIX}")
            if not path.exists():
                return CaptureOutput(path)

    def keep(self, output: CaptureOutput) -> None:
        """Count one that was stored."""
        self.stored += 1
        self._kept.append(output)

    def make_room(self, places: int = 0) -> list[Path]:
        """Remove the oldest until `places` more may be kept; returns those."""
        removed = []
        while self._kept and len(self._kept) + places > self._most:
            oldest = self._kept.popleft()
            if oldest.remove():
                removed.append(oldest.shown)
        return removed
