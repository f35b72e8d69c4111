"""The programs of this user that wait for `gpuprof snap`, by a small file of each.

The signal that asks for a capture ends a program that does not handle it, and the number of a
process that has ended is another's later. So a process is asked only where its file says the same
start of the process as the kernel, and the kernel says that it catches the signal.
"""

import os
import signal
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Final
from zlib import crc32

import msgspec

from gpuprof.collectors.errors import CaptureError, CommandError, describe
from gpuprof.collectors.files.stored_json import decode_stored, stored_content

_PROC: Final = Path("/proc")
# Of proc(5)'s fields of stat behind the name: field 22.
_START_TICKS: Final = 19
_CAUGHT: Final = "SigCgt:"
_SIGNALS: Final = int(signal.NSIG)


class WaitingProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One program that waits."""

    process: Annotated[int, msgspec.Meta(ge=1)]
    # What runs in it, as the command line had it.
    title: str
    # Captures lie beside it, with a number in their names.
    output: str
    signal: Annotated[int, msgspec.Meta(ge=1, lt=_SIGNALS)]
    since_ns: int
    # Its start in ticks since the host's, and which host's processes are numbered so.
    start_ticks: int
    numbering: str


def own_process(title: str, output: Path, number: int, since_ns: int) -> WaitingProcess:
    """This process, which waits from now on. Raises `CommandError` where there is no /proc."""
    try:
        return WaitingProcess(
            process=os.getpid(),
            title=title,
            output=str(output),
            signal=number,
            since_ns=since_ns,
            start_ticks=_start_ticks(os.getpid()),
            numbering=_numbering(),
        )
    except OSError:
        raise CommandError(
            "--wait needs /proc, by which gpuprof snap knows the program; this system has none"
        ) from None


@contextmanager
def announced(waiting: WaitingProcess) -> Iterator["WaitingMark"]:
    """Within this context `waiting` can be found. Raises `CommandError` where it can't be told."""
    mark = WaitingMark(waiting)
    try:
        yield mark
    finally:
        mark.remove()


class WaitingMark:
    """The file of one process."""

    def __init__(self, waiting: WaitingProcess) -> None:
        """Write it. Raises `CommandError` where no private folder can be had."""
        self._owner = os.getpid()
        self._path = own_folder() / _file_name(waiting)
        temporary = self._path.with_suffix(".tmp")
        try:
            temporary.write_bytes(msgspec.json.encode(waiting))
            temporary.replace(self._path)
        except OSError as error:
            raise CommandError(
                f"{self._path}: gpuprof snap would not find the program: {describe(error)}"
            ) from error

    def remove(self) -> None:
        """The program waits no longer. A forked child leaves the file."""
        if os.getpid() == self._owner:
            with suppress(OSError):
                self._path.unlink()


def waiting_processes() -> tuple[WaitingProcess, ...]:
    """Those of this user on this host, by number. Files of programs that have ended are removed."""
    found = {}
    for folder in _folders():
        if not _is_private(folder):
            continue
        for path in folder.glob("*.json"):
            waiting = _read(path)
            if waiting is None or waiting.numbering != _numbering():
                continue
            if _waits(waiting):
                found[waiting.process] = waiting
            else:
                with suppress(OSError):
                    path.unlink()
    return tuple(found[process] for process in sorted(found))


def ask(waiting: WaitingProcess) -> None:
    """Ask for a capture. Raises `CommandError` where the program does not wait any more."""
    try:
        # The descriptor stands for this process, also where another gets the number meanwhile.
        descriptor = os.pidfd_open(waiting.process)
        try:
            if _waits(waiting):
                signal.pidfd_send_signal(descriptor, waiting.signal)
                return
        finally:
            os.close(descriptor)
    except ProcessLookupError:
        pass
    raise CommandError(
        f"process {waiting.process} ({waiting.title}) does not wait any more; "
        "gpuprof snap --list shows those that do"
    )


def _waits(waiting: WaitingProcess) -> bool:
    """Whether the process is the one of the file, and catches the signal."""
    try:
        if _start_ticks(waiting.process) != waiting.start_ticks:
            return False
        status = (_PROC / str(waiting.process) / "status").read_text()
    except OSError:
        return False
    caught = next((line for line in status.splitlines() if line.startswith(_CAUGHT)), "0 0")
    return bool(int(caught.split()[1], 16) >> (waiting.signal - 1) & 1)


def _read(path: Path) -> WaitingProcess | None:
    # ValueError: msgspec's errors, and invalid UTF-8.
    with suppress(CaptureError, ValueError):
        return decode_stored(stored_content(path), WaitingProcess)
    return None


def _file_name(waiting: WaitingProcess) -> str:
    # Containers that share the folder number their processes alike.
    return f"{waiting.process}-{crc32(waiting.numbering.encode()):08x}.json"


def _start_ticks(process: int) -> int:
    text = (_PROC / str(process) / "stat").read_text(errors="replace")
    return int(text.rpartition(")")[2].split()[_START_TICKS])


def _numbering() -> str:
    """What tells the numbers of this host's or container's processes from those of others."""
    boot = (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    return f"{boot} {os.readlink(_PROC / 'self' / 'ns' / 'pid')}"


def _folders() -> Iterator[Path]:
    """Where files may lie. The variable may be set for one of two shells only."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        yield Path(runtime) / "gpuprof"
    yield Path(tempfile.gettempdir()) / f"gpuprof-{os.getuid()}"


def own_folder() -> Path:
    """Where the file of this process goes. Raises `CommandError` where no folder is private."""
    for folder in _folders():
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            if _is_private(folder):
                return folder
    tried = ", ".join(str(folder) for folder in _folders())
    raise CommandError(
        "--wait needs a folder where only you can write, for gpuprof snap to look in; "
        f"tried: {tried}"
    )


def _is_private(folder: Path) -> bool:
    """Whether nobody else can write there, or lead us elsewhere."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    )
