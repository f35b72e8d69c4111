"""Files and folders that appear whole or not at all, and places that are tried before any work.

What is under way stands beside its place under a short name of its own, so that a name as long as
the system allows can be written too.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpuprof.collectors.errors import CommandError, problem_of
from gpuprof.collectors.files.temporary import marked, remove_left_behind

if TYPE_CHECKING:
    import polars as pl

# What a trial writes: less than most captures and pages, so a disk without it is full.
_TRIAL_BYTES: Final = 1 << 20
# Of rows with stacks: memory holds each text once, but what is written at once has it in each row.
_ROWS_AT_ONCE: Final = 1 << 15
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")


def refuse_existing(path: Path, *, force: bool, option: str = "-o") -> None:
    """Raise `CommandError` if no file may or can be written at `path`.

    Called before any work starts, so that nothing is measured only to be thrown away.
    """
    if path.is_dir():
        raise CommandError(f"{path} is a folder; choose another {option}")
    # Such as a device, which a file would take the place of.
    if os.path.exists(path) and not path.is_file():
        raise CommandError(f"{path} is no plain file; choose another {option}")
    refuse_taken(path, force=force, option=option)
    refuse_unwritable(_behind_links(path), option=option)


def refuse_taken(path: Path, *, force: bool, option: str = "-o") -> None:
    """Raise `CommandError` if something stands at `path` and may not be replaced."""
    if os.path.exists(path) and not force:
        raise CommandError(f"{path} exists; choose another {option} or pass --force to replace it")


def refuse_unwritable(path: Path, *, option: str = "-o") -> None:
    """Raise `CommandError` if nothing can be made at `path`, as a trial beside it shows."""
    parent = path.absolute().parent
    if not os.path.isdir(parent):
        raise CommandError(f"{parent} is not a folder; make it first or choose another {option}")
    _try(path, parent, option)


def refuse_unwritable_folder(folder: Path, *, option: str) -> None:
    """Raise `CommandError` if nothing can be made in `folder`, which need not exist yet."""
    places = (folder.absolute(), *folder.absolute().parents)
    nearest = next(place for place in places if os.path.lexists(place))
    if not os.path.isdir(nearest):
        raise CommandError(f"{nearest} is not a folder; choose another {option}")
    _try(folder, nearest, option)


def _try(path: Path, folder: Path, option: str) -> None:
    remove_left_behind(folder)
    trial = temporary_beside(folder / path.name)
    try:
        # It fails where the name is too long.
        with suppress(FileNotFoundError):
            os.lstat(path)
        try:
            trial.write_bytes(bytes(_TRIAL_BYTES))
        finally:
            trial.unlink(missing_ok=True)
    except OSError as error:
        problem = f"{path} cannot be written: {problem_of(error)}"
        raise CommandError(f"{problem}; choose another {option}") from error


def temporary_beside(path: Path) -> Path:
    """A name in the folder of `path` that nothing has yet."""
    return path.absolute().with_name(f".gpuprof-{marked()}{os.urandom(4).hex()}.tmp")


@contextmanager
def told_of(path: Path) -> Iterator[None]:
    """What the system refuses within this context is an `OSError` with the name `path`."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, problem_of(error), str(path)) from error


@contextmanager
def under_a_temporary_name(path: Path) -> Iterator[Path]:
    """A name to write at, for what is to stand at `path`; whatever is left there is removed.

    Raises `OSError` with the name `path`.
    """
    temporary = temporary_beside(path)
    try:
        with told_of(path):
            yield temporary
    finally:
        # What cannot be removed, as where its folder is gone, must not hide why.
        with suppress(OSError):
            if temporary.is_dir() and not temporary.is_symlink():
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                temporary.unlink(missing_ok=True)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name to write a file at, which becomes `path` where the block ends well.

    Of a link the file that it leads to is replaced. Raises `OSError` with that file's name.
    """
    place = _behind_links(path)
    with under_a_temporary_name(place) as temporary:
        yield temporary
        temporary.replace(place)


def _behind_links(path: Path) -> Path:
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def write_file(path: Path, content: bytes) -> None:
    """Write one file, whole or not at all. Raises as `whole_file`."""
    with whole_file(path) as temporary:
        temporary.write_bytes(content)


def write_parquet(frame: "pl.DataFrame", path: Path) -> None:
    """Write `frame` as the Parquet file `path`. Raises `OSError`, also for a full disk."""
    import polars as pl

    try:
        frame.write_parquet(path, row_group_size=_ROWS_AT_ONCE if "stack" in frame else None)
    except (pl.exceptions.PolarsError, OSError) as error:
        # Polars tells of the system's errors in words, and of some as errors of the file's format.
        number = _OS_ERROR.search(str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
