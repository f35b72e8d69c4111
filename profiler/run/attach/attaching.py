"""The side of `gpuprof snap --attach`: reaches into a program and stores what it records.

`sys.remote_exec` (PEP 768, Python 3.14) has the program's main thread run a script, as soon as it
is between two instructions. The script answers at a socket in a folder that is ours alone.
"""

import os
import select
import shutil
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import gpuprof
from gpuprof._version import __version__
from gpuprof.collectors.errors import CommandError, reason
from gpuprof.collectors.files.temporary import in_use, keep, new_temporary_folder
from gpuprof.profiler.run.attach import injected
from gpuprof.profiler.run.attach.messages import SEARCHING, ReachedPhase, RecordRequest
from gpuprof.profiler.run.attach.process_facts import ProcessFacts, no_permission
from gpuprof.profiler.run.output import CaptureOutput
from gpuprof.profiler.run.recorded import Recorded
from gpuprof.profiler.run.storing_messages import StoreAside, StoredAside, receive, send
from gpuprof.profiler.run.surroundings import give_way

_SCRIPT: Final = "begin.py"
_SOCKET: Final = "socket"
# Of a Linux socket's peer: process, user and group.
_PEER: Final = struct.Struct("iII")
# After which it is told that no step was marked.
_STEP_PATIENCE_S: Final = 30.0
_PACKAGES: Final = ("site-packages", "dist-packages")


def refuse_own_python() -> None:
    """Raise `CommandError` where this interpreter cannot reach into another."""
    remote: Any = sys
    if sys.version_info < (3, 14):
        raise CommandError(
            f"--attach needs Python 3.14 or later, in the program too, and gpuprof runs on "
            f"{sys.version_info[0]}.{sys.version_info[1]}; gpuprof run --wait starts a program on "
            "any"
        )
    if not remote.is_remote_debug_enabled():
        raise CommandError(
            "remote debugging is switched off for gpuprof itself "
            "(PYTHON_DISABLE_REMOTE_DEBUG, or -X disable-remote-debug): start it without"
        )


class Attachment:
    """A program that has run the script, and waits for a request."""

    def __init__(self, facts: ProcessFacts, patience_s: float) -> None:
        """Reach into the process.

        Raises `CommandError` where that is not allowed, or where its main thread does not come
        between two instructions within `patience_s` seconds.
        """
        self._who = f"process {facts.process} ({facts.target.title})"
        self._process = facts.process
        try:
            self._descriptor = os.pidfd_open(facts.process)
        except ProcessLookupError:
            raise CommandError(f"there is no process {facts.process}") from None
        folder = new_temporary_folder("attach")
        try:
            self._connection = self._reach(folder, patience_s)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _reach(self, folder: Path, patience_s: float) -> socket.socket:
        script = folder / _SCRIPT
        taken = asked = False
        try:
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(folder / _SOCKET))
                listening.listen(1)
                script.write_text(script_text(folder / _SOCKET))
                execute(self._process, script)
                asked = True
                connection = self._accepted(listening, patience_s)
                taken = True
                return connection
        finally:
            if taken or not asked or self._is_dead(0):
                shutil.rmtree(folder, ignore_errors=True)
            else:
                _disarm(folder)

    def _accepted(self, listening: socket.socket, patience_s: float) -> socket.socket:
        ready = self._ready(listening, patience_s)
        if self._descriptor in ready:
            raise CommandError(f"{self._who} has ended")
        if not ready:
            raise CommandError(
                f"{self._who} has not taken the request in {patience_s:g} s: its main thread is in "
                "C code, or stopped; the request was taken back, and --timeout waits longer"
            )
        connection, _ = listening.accept()
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        if _PEER.unpack(peer)[0] != self._process:
            connection.close()
            raise CommandError(f"another process answered for {self._who}")
        return connection

    def record(self, request: RecordRequest, told: Callable[[str], None]) -> CaptureOutput:
        """Have the request done and store what comes of it.

        `told` is called with sentences about how far it is. Raises `CommandError` where there is
        nothing to store. Whatever ends this, the program is left alone.
        """
        with self._connection as connection:
            try:
                # It may have said already why it cannot take one.
                with suppress(OSError):
                    send(connection, request)
                return self._followed(connection, request, told)
            except OSError as error:
                raise CommandError(f"{self._who} answers no more: {reason(error)}") from error
            finally:
                os.close(self._descriptor)

    def _followed(
        self, connection: socket.socket, request: RecordRequest, told: Callable[[str], None]
    ) -> CaptureOutput:
        patience_s: float | None = _STEP_PATIENCE_S
        while True:
            ready = self._ready(connection, patience_s)
            if not ready:
                told(f"no step was marked in {patience_s:g} s; Ctrl-C leaves the program as it was")
                patience_s = None
                continue
            # Children of the program may have the connection, and live longer.
            message = receive(connection) if connection.fileno() in ready else None
            if isinstance(message, StoreAside):
                output = self._stored(connection, message.recorded, told)
                # The end of the connection says that the program is left alone.
                self._ready(connection, None)
                return output
            if isinstance(message, ReachedPhase):
                if message.name != SEARCHING:
                    patience_s = None
                told(_sentence(message, request))
            elif isinstance(message, str):
                raise CommandError(f"{self._who}: {message}")
            else:
                raise CommandError(
                    f"{self._who} has ended before its steps were profiled; nothing was stored"
                )

    def _stored(
        self, connection: socket.socket, recorded: Recorded, told: Callable[[str], None]
    ) -> CaptureOutput:
        give_way()
        from gpuprof.profiler.run.store_recorded import store_final

        output = recorded.subject.output
        with in_use(recorded.seen.folder):
            analysed = store_final(recorded).analysed
        if analysed.problem:
            told(analysed.problem_sentence(output.shown))
        with suppress(OSError):
            send(connection, StoredAside(output))
        return output

    def _ready(self, connection: socket.socket, patience_s: float | None) -> list[int]:
        """Which of the process, which has ended then, and `connection` has something to tell."""
        poll = select.poll()
        for descriptor in (connection.fileno(), self._descriptor):
            poll.register(descriptor, select.POLLIN)
        return [ready for ready, _ in poll.poll(None if patience_s is None else patience_s * 1e3)]

    def _is_dead(self, patience_s: float) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(patience_s * 1e3))


def script_text(place: Path) -> str:
    """The script that answers at the socket `place`."""
    package = str(Path(gpuprof.__file__).parent)
    dependencies = [folder for folder in sys.path if Path(folder).name in _PACKAGES]
    call = f"begin({str(place)!r}, {package!r}, {dependencies!r}, {__version__!r})"
    return f"{Path(injected.__file__).read_text()}\n\n{call}\n"


def execute(process: int, script: Path) -> None:
    """Have the main thread of `process` run `script` when it can. Raises `CommandError`."""
    remote: Any = sys
    try:
        remote.remote_exec(process, str(script))
    except PermissionError:
        raise CommandError(no_permission(process)) from None
    except (OSError, RuntimeError) as error:
        if not Path("/proc", str(process)).exists():
            raise CommandError(f"there is no process {process}") from None
        said = reason(error)
        if "not enabled in the remote process" in said:
            raise CommandError(
                f"process {process} does not allow it: it was started with "
                "PYTHON_DISABLE_REMOTE_DEBUG or -X disable-remote-debug"
            ) from None
        raise CommandError(f"Python cannot reach into process {process}: {said}") from error


def _disarm(folder: Path) -> None:
    """The program may still run the script: all that it does then is to remove it."""
    keep(folder)
    replacing = folder / f"{_SCRIPT}.new"
    replacing.write_text(f"import shutil\n\nshutil.rmtree({str(folder)!r}, ignore_errors=True)\n")
    replacing.replace(folder / _SCRIPT)


def _sentence(phase: ReachedPhase, request: RecordRequest) -> str:
    schedule = request.options.schedule
    sentences = {
        SEARCHING: "attached; Ctrl-C leaves the program as it was",
        "warmup": f"a step was marked; {schedule.warmup} to warm up",
        "timed": f"timing {schedule.timed} steps",
        "profiled": f"profiling {schedule.profiled} steps",
    }
    return sentences.get(phase.name, phase.name)
