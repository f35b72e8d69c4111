"""Temporary files that only their owner can read, and the removal of what killed processes left.

A name says which process made it, so that another can prove that nobody needs it any more: a
process is known by its id and start time within one boot and one namespace of process ids. What
was made elsewhere (another machine or container that shares the folder) proves nothing and stays.
"""

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

# A folder whose removal is more than that of its files; see `left_behind`.
WORKTREE: Final = "worktree"
# In a folder that is to outlive its process.
_KEPT: Final = "kept"
_MAKER: Final = re.compile(r"\.?gpuprof-(?:([a-z]+)-)?([0-9a-f]{8})-([0-9]+)-([0-9]+)-")


@contextmanager
def temporary_folder(purpose: str = "") -> Iterator[Path]:
    """A new folder that is removed at the end. Raises `OSError`."""
    folder = new_temporary_folder(purpose)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_temporary_folder(purpose: str = "") -> Path:
    """A new folder that the caller removes; what the dead left is removed first.

    Raises `OSError`.
    """
    _remove_left_behind(Path(tempfile.gettempdir()), os.getpid())
    named = f"gpuprof-{purpose}-" if purpose else "gpuprof-"
    return Path(tempfile.mkdtemp(prefix=named + marked()))


def marked() -> str:
    """How names begin of what this process makes and removes."""
    return f"{_here()}-{os.getpid()}-{_started(os.getpid()) or 0}-"


def keep(folder: Path) -> None:
    """Let `folder` stay once this process has ended."""
    (folder / _KEPT).touch()


@contextmanager
def in_use(folder: Path | None) -> Iterator[None]:
    """Within this context `folder` stays, though the process that made it may have ended."""
    descriptor = None
    # Where it is gone whoever reads it will say so.
    with suppress(OSError):
        descriptor = None if folder is None else os.open(folder, os.O_RDONLY)
    if descriptor is None:
        yield
        return
    try:
        # Not on every file system.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def remove_left_behind(folder: Path) -> None:
    """Remove what processes that are dead have left in `folder`, once for each folder."""
    _remove_left_behind(folder, os.getpid())


@cache
def _remove_left_behind(folder: Path, _: int) -> None:
    for purpose, path in left_behind(folder):
        if purpose == WORKTREE:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


def left_behind(folder: Path) -> Iterator[tuple[str, Path]]:
    """What processes that are dead have left in `folder`, with what it was for."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            made = _MAKER.match(entry.name)
            if made is None or made[2] != _here() or entry.is_symlink():
                continue
            with suppress(OSError):
                if entry.stat().st_uid == os.geteuid() and _is_over(made, Path(entry.path)):
                    yield made[1] or "", Path(entry.path)


def _is_over(made: re.Match[str], path: Path) -> bool:
    started = _started(int(made[3]))
    if made[4] == "0" or started == made[4] or (path / _KEPT).exists():
        return False
    return not path.is_dir() or not _is_in_use(path)


def _is_in_use(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # No locks here, and so none of ours.
        return False
    finally:
        os.close(descriptor)
    return False


@cache
def _here() -> str:
    """What stands for this boot of this machine and this namespace of process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        # Nothing can be proved here: the start time of processes is unknown too.
        return "0" * 8
    return hashlib.sha256(f"{boot}{namespace}".encode()).hexdigest()[:8]


def _started(process: int) -> str | None:
    """When a process of this machine started, in ticks since boot; None where there is none."""
    try:
        # Its name, in brackets, may hold anything.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
