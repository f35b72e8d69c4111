"""Where the capture of one run goes, decided each time that it is stored.

A program may make a folder of the same name, put files into ours or change its directory, and
other runs may be given the same name. So only what this run has written is replaced, and with
`force` a capture that stood there; else the capture goes beside it. Where its folder cannot be
written any more it goes to the folder that the run was started in, or to the one for temporary
files: what was measured is not thrown away.
"""

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof.collectors import storage
from gpuprof.collectors.errors import describe
from gpuprof.collectors.files.writing import refuse_unwritable
from gpuprof.profiler.page_output import PAGE_SUFFIX, PageOutput
from gpuprof.profiler.run.ranks import Ranks

if TYPE_CHECKING:
    from gpuprof.collectors.capture import Capture
    from gpuprof.roofline.analysis import Analysis


class CaptureOutput:
    """The name that a run was given, and where its capture lies."""

    def __init__(
        self,
        requested: Path,
        *,
        force: bool = False,
        named: bool = True,
        page: PageOutput | None = None,
    ) -> None:
        """`named`: a person chose `requested`, and wants to hear of another place.

        `page` is written too once the capture is stored.
        """
        self.named = named
        self.page = page
        # For people, as they would type it where the run was started.
        self._shown = requested
        # A program may change its directory.
        self.requested = Path(os.path.abspath(requested))
        self.path = self.requested
        self._started_in = Path(os.path.abspath(os.curdir))
        self._force = force
        # Why the folder of `requested` could not be written.
        self._trouble = ""
        self._written: tuple[int, int] | None = None

    def refuse_existing(self) -> None:
        """Raise `CommandError`, before a program starts, where a capture cannot be stored."""
        if self.named:
            storage.refuse_existing_capture(self._shown, force=self._force)
        else:
            refuse_unwritable(self._shown)
        if self.page is not None:
            self.page.refuse_existing(force=self._force)

    @property
    def shown(self) -> Path:
        """`path` relative to where the run was started, if it was given so."""
        if self.path.parent != self.requested.parent:
            return self.path
        return self._shown.with_name(self.path.name)

    @property
    def stored(self) -> bool:
        """Whether this process has stored anything."""
        return self._written is not None

    @property
    def moved_because(self) -> str:
        """Why the capture does not lie where a person would look for it; "" where it does."""
        if self.path.parent != self.requested.parent:
            return self._trouble
        beside = self.named and self.path != self.requested
        return f"{self.requested} was not free" if beside else ""

    def adopt(self, other: "CaptureOutput") -> None:
        """Take what `other` has stored, a copy of this in another process, for our own."""
        self.path, self._written, self._trouble = other.path, other._written, other._trouble

    def remove(self) -> bool:
        """Remove the capture that this run has stored; False where it is not there any more.

        Files that somebody has put beside its own stay.
        """
        ours = self._written is not None and _identity(self.path) == self._written
        if ours:
            storage.remove(self.path)
            self._written = None
        return ours

    def store_early(self, capture: "Capture", analysis: "Analysis | None") -> None:
        """Store what is known while the program goes on.

        It may still make a folder with the requested name, if that is not one of ours.
        """
        self._store(capture, analysis, _with_our_suffix(self.requested))

    def store(
        self,
        capture: "Capture",
        analysis: "Analysis | None",
        *,
        further: Mapping[str, bytes] | None = None,
    ) -> None:
        """Store the capture in place of what `store_early` stored.

        `further` are more files of the folder by name.
        """
        self._store(capture, analysis, self.requested, further)

    def _store(
        self,
        capture: "Capture",
        analysis: "Analysis | None",
        place: Path,
        further: Mapping[str, bytes] | None = None,
    ) -> None:
        from gpuprof.profiler.captures import store

        try:
            written = store(
                capture, analysis, place, replaceable=self._is_replaceable, further=further
            )
        except OSError as error:
            self.store_elsewhere(capture, analysis, error, further=further)
        else:
            self._wrote(written)

    def store_elsewhere(
        self,
        capture: "Capture",
        analysis: "Analysis | None",
        error: OSError,
        *,
        further: Mapping[str, bytes] | None = None,
    ) -> None:
        """Store the capture in another folder, because of `error`, which is raised if none will."""
        from gpuprof.profiler.captures import store

        name = _with_our_suffix(self.requested).name
        for folder in self._other_folders():
            with suppress(OSError):
                written = store(
                    capture,
                    analysis,
                    folder / name,
                    replaceable=self._is_replaceable,
                    further=further,
                )
                self._trouble = describe(error)
                self._wrote(written)
                return
        raise error

    def _other_folders(self) -> Iterator[Path]:
        # It may have been removed, and a capture makes the folders that it lies in.
        if self._started_in != self.requested.parent and self._started_in.is_dir():
            yield self._started_in
        # Raises where there is none.
        with suppress(OSError):
            yield Path(tempfile.gettempdir())

    def _wrote(self, path: Path) -> None:
        former, was_written = self.path, self._written
        self.path, self._written = path, _identity(path)
        if path != former and was_written is not None and _identity(former) == was_written:
            storage.remove(former)

    def _is_replaceable(self, place: Path) -> bool:
        if self._written is not None and _identity(place) == self._written:
            return True
        return self._force and place == self.requested


def choose_output(
    requested: Path | None,
    stem: str,
    *,
    force: bool,
    opens: bool = False,
    ranks: Ranks | None = None,
) -> CaptureOutput:
    """`requested`, or else a folder in the working directory named after `stem` and the time.

    The ranks of one job must agree on it: what tells the job stands for the time there. Where a
    page is requested, by its ending or because a browser `opens` it, capture and page lie side by
    side. `ranks` are those that the environment tells unless they are given.
    """
    ranks = ranks or Ranks.from_environment()
    capture, page = _pair(requested or _named_after(stem, ranks), opens=opens)
    return CaptureOutput(capture, force=force, named=requested is not None, page=page)


def _pair(requested: Path, *, opens: bool) -> tuple[Path, PageOutput | None]:
    is_page = requested.suffix.lower() == PAGE_SUFFIX
    if not is_page and not opens:
        return requested, None
    stem = requested.name[: -len(PAGE_SUFFIX)] if is_page else _without_our_suffix(requested)
    page = requested if is_page else requested.with_name(stem + PAGE_SUFFIX)
    capture = requested.with_name(stem + storage.SUFFIX) if is_page else requested
    return capture, PageOutput(Path(os.path.abspath(page)), opens=opens)


def _named_after(stem: str, ranks: Ranks) -> Path:
    when = time.strftime("%Y%m%d-%H%M%S") if ranks.alone else _job_name(ranks)
    return Path(f"gpuprof-{stem}-{when}{storage.SUFFIX}")


def _job_name(ranks: Ranks) -> str:
    """As people know it where they do: the port that ranks meet at, or SLURM's job and step."""
    slurm = [os.environ[name] for name in ("SLURM_JOB_ID", "SLURM_STEP_ID") if name in os.environ]
    if "RANK" not in os.environ and slurm:
        return f"job{'.'.join(slurm)}"
    port = os.environ.get("MASTER_PORT")
    return f"job{ranks.job}" if port is None else f"port{port}"


def _with_our_suffix(path: Path) -> Path:
    return path.with_name(_without_our_suffix(path) + storage.SUFFIX)


def _without_our_suffix(path: Path) -> str:
    return path.name.removesuffix(storage.SUFFIX)


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a folder from another of the same name."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
