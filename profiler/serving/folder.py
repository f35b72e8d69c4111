"""What lies in a folder that is shown: captures, and a history of gates."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpuprof.collectors import storage
from gpuprof.collectors.errors import CaptureError, GpuprofError, describe
from gpuprof.profiler.captures import load_analysis
from gpuprof.reports.html.listing import ListedCapture, listed
from gpuprof.roofline.analysis import Analysis

HISTORY_FILE: Final = "gpuprof-history.sqlite"
# Folders below the one that is shown: runs/DATE/NAME.gpuprof.
_DEEPEST: Final = 3
_MOST: Final = 1000


class CapturesFolder:
    """A folder whose captures are shown; it is read again for each page."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Those of captures that are as they were, by name and the time of writing.
        self._rows: dict[tuple[str, int], ListedCapture] = {}

    def names(self) -> list[str]:
        """The captures' paths within the folder, the newest first, and no more than 1,000."""
        found = [(_written_ns(place), place) for place in self._captures(self.path, _DEEPEST)]
        newest = sorted(found, key=lambda each: (-each[0], str(each[1])))[:_MOST]
        return [place.relative_to(self.path).as_posix() for _, place in newest]

    def listing(self) -> list[ListedCapture]:
        """A row for each of `names`. What cannot be read has a row that says why."""
        keys = [(name, _written_ns(self.path / name)) for name in self.names()]
        self._rows = {key: self._rows.get(key) or self._row(key[0]) for key in keys}
        return list(self._rows.values())

    def _row(self, name: str) -> ListedCapture:
        try:
            return listed(name, load_analysis(self.path / name))
        except GpuprofError as error:
            return ListedCapture(name=name, problem=describe(error))

    def analysis(self, name: str) -> Analysis:
        """That of one of `names`. Raises `CaptureError`, also for any other name."""
        if name not in self.names():
            raise CaptureError(self.path / name, "there is no such capture")
        return load_analysis(self.path / name)

    @property
    def history(self) -> Path | None:
        """The history of gates in the folder, where there is one."""
        file = self.path / HISTORY_FILE
        return file if file.is_file() else None

    def _captures(self, folder: Path, depth: int) -> Iterator[Path]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            # A link may lead out of the folder.
            if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                continue
            place = Path(entry.path)
            if storage.is_capture(place):
                yield place
            elif depth > 1:
                yield from self._captures(place, depth - 1)


def _written_ns(place: Path) -> int:
    try:
        return (place / storage.MANIFEST_FILE).stat().st_mtime_ns
    except OSError:
        return 0
