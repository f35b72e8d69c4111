"""Records the next steps of a program that did not ask for it, and then leaves it alone.

A thread talks to `gpuprof snap --attach`; what touches the program is done on its main thread.
Nothing is printed there. Where the other side ends, by Ctrl-C or otherwise, all ends.
"""

import atexit
import os
import select
import socket
import sys
import threading
from _thread import start_new_thread
from contextlib import AbstractContextManager, suppress
from typing import Final

# Imported here, as it could not be found later on: see `injected`.
import pynvml  # noqa: F401

from gpuprof.collectors.live.script_errors import hiding_our_errors
from gpuprof.profiler.run import current_session
from gpuprof.profiler.run.attach.messages import SEARCHING, ReachedPhase, RecordRequest
from gpuprof.profiler.run.main_thread import call_on_main_thread, is_called_by_torch
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.profiler.run.recording import Recording
from gpuprof.profiler.run.storing_messages import StoreAside, receive, send

# Of the session, when the profiled steps are done.
_OVER: Final = ("later", "done")
_ONCE_MORE_SECONDS: Final = 0.2
_LOOK_MS: Final = 500
# As long as a program that ends waits for its capture.
_GRACE_S: Final = 25.0
_one_at_a_time = threading.Lock()


def serve(connection: socket.socket) -> None:
    """Do what comes over `connection`, on a thread of its own. Closes it in the end."""
    with connection:
        with suppress(OSError):
            request = receive(connection)
            if not isinstance(request, RecordRequest):
                return
            if _one_at_a_time.acquire(blocking=False):
                try:
                    AttachedCapture(connection, request).serve()
                finally:
                    _one_at_a_time.release()
            else:
                send(connection, "a capture of it is under way; ask again later")
        # Children of the program may have the connection too.
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class AttachedCapture:
    """One capture, from the request to the moment when nothing of it is left."""

    def __init__(self, connection: socket.socket, request: RecordRequest) -> None:
        self._connection = connection
        self._request = request
        self._process = os.getpid()
        self._phase = ""
        self._recording: Recording | None = None
        self._finished = False
        # Set once the other side has stored the capture, or is gone.
        self._settled = threading.Event()
        # Set once the program is as it was.
        self._left = threading.Event()

    def serve(self) -> None:
        """Until the program is left alone again."""
        call_on_main_thread(self._begin)
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        while not poll.poll(_LOOK_MS):
            recording = self._recording
            if recording is not None and recording.session.gave_up:
                call_on_main_thread(self._end)
        with suppress(OSError):
            # That it is stored, or nothing where nobody is there any more.
            receive(self._connection)
        self._settled.set()
        call_on_main_thread(self._leave)
        self._left.wait()

    # -- on the main thread --------------------------------------------------------------------

    def _begin(self) -> None:
        if self._settled.is_set():
            return
        # As in `FirstLook`: in the middle of an operator or a compilation nothing may begin.
        if is_called_by_torch(sys._getframe()):
            again = threading.Timer(_ONCE_MORE_SECONDS, call_on_main_thread, [self._begin])
            again.daemon = True
            again.start()
            return
        with self._guarded():
            ranks = Ranks.in_program()
            why_not = _why_not(ranks)
            if why_not:
                self._say(why_not)
                return
            self._recording = Recording(
                self._request.subject, self._request.options, ranks=ranks, on_step=self._stepped
            )
            atexit.register(self._program_ends)
            self._say(ReachedPhase(SEARCHING))
            self._recording.start()

    def _stepped(self, phase: str) -> None:
        if phase in _OVER:
            self._end()
        elif phase != self._phase:
            self._phase = phase
            self._say(ReachedPhase(phase))

    def _end(self) -> None:
        """The profiled steps are done: hand over what was recorded."""
        with self._guarded():
            recorded = self._finish()
            if recorded is not None:
                start_new_thread(self._say, (recorded,))

    def _program_ends(self) -> None:
        """The capture under way is stored as far as it got, and a finished one has its traces."""
        if os.getpid() != self._process:
            return
        with self._guarded():
            recorded = self._finish()
            if recorded is not None:
                self._say(recorded)
            self._settled.wait(_GRACE_S)
        self._leave()

    def _finish(self) -> StoreAside | None:
        """Stop watching; None where that is done, or never began."""
        if self._recording is None or self._finished:
            return None
        self._finished = True
        try:
            return StoreAside(self._recording.finish("finished", 0))
        finally:
            current_session.current = None

    def _leave(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            with self._guarded():
                if not self._finished:
                    # Nobody is there to store it.
                    recording.finish("finished", 0)
                    current_session.current = None
                recording.close()
            atexit.unregister(self._program_ends)
        self._left.set()

    def _guarded(self) -> AbstractContextManager[None]:
        """The program must not fail because nothing could be recorded."""
        return hiding_our_errors(lambda why: self._say(f"nothing was recorded: {why}"))

    def _say(self, message: object) -> None:
        with suppress(OSError):
            send(self._connection, message)


def _why_not(ranks: Ranks) -> str:
    """Why nothing can be recorded now; "" where it can."""
    if current_session.current is not None:
        return "gpuprof records it already (gpuprof run, or gpuprof.profile() in the program)"
    if not ranks.alone:
        return (
            f"it is one of {ranks.world_size} ranks, which would not begin with the same step, and "
            "wait for each other"
        )
    return ""
