"""Answers SIGTERM and SIGHUP where the program does not, and stays out of its sight.

Without a handler these signals end a program at once, so here nothing of it runs any more either:
the capture is stored and the process ends by the signal. The program sees no handler: what it
asks `signal` is answered as if there were none, and one that it installs takes the place of ours.

Python's handlers run on the main thread, between two instructions. While that is in C, a thread
does the work: it is woken through a pipe by faulthandler, the one handler in the standard library
that acts at once, which then lets Python's have the signal.
"""

import ctypes
import faulthandler
import os
import select
import signal
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

from gpuprof.profiler.run.main_thread import main_thread_answers
from gpuprof.profiler.run.visible_signals import program_sees

# A second signal within this time is the same wish.
_AT_ONCE_S = 1.0
# torchrun and most schedulers kill 30 s after their first signal.
_GRACE_S = 25.0
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

_current: "EndingSignals | None" = None
_forking = threading.local()
_hooks_for_forks_installed = False


class EndingSignals:
    """Stands in for the default action of signals that end a program."""

    def __init__(self, end: Callable[[signal.Signals], bool]) -> None:
        """`end` ends the program's recording on the calling thread.

        It returns False where that is under way already.
        """
        self._end = end
        self._process = os.getpid()
        self._handler = self._arrived
        self._handled = {n for n in _SIGNALS if signal.getsignal(n) == signal.SIG_DFL}
        self._claim = threading.Lock()
        self._answered = threading.Event()
        # Which thread answers the first signal, and since when.
        self._answering = (0, 0.0)
        # How many contexts of `answered_afterwards` the main thread is in, and what came meanwhile.
        self._postponing = 0
        self._postponed: signal.Signals | None = None
        self._pipes: dict[int, signal.Signals] = {}
        self._writable: dict[int, int] = {}
        self._signal: Any = signal.signal
        self._getsignal: Any = signal.getsignal

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within this context the signals are answered; signals reach the main thread only."""
        global _current
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        _install_hooks_for_forks()
        self._open_pipes()
        for number in self._handled:
            self._take(number)
        _current = self
        try:
            with program_sees(self._visible_signal, self._visible_getsignal):
                yield
        finally:
            self.leave()

    def leave(self) -> None:
        """Give back what is ours still; also in a forked child, where signals act as without us."""
        global _current
        _current = None
        for number in self._handled:
            if self._is_ours(number):
                faulthandler.unregister(number)
                self._signal(number, signal.SIG_DFL)
        self._handled = set()

    # -- what the program sees -----------------------------------------------------------------

    def _visible_getsignal(self, number: int) -> Any:
        handler = self._getsignal(number)
        return signal.SIG_DFL if handler is self._handler else handler

    def _visible_signal(self, number: int, handler: Any) -> Any:
        if number not in self._handled:
            return self._signal(number, handler)
        was_ours = self._is_ours(number)
        if was_ours:
            faulthandler.unregister(number)
        try:
            previous = self._signal(number, handler)
            if handler == signal.SIG_DFL:
                self._take(number)
        except BaseException:
            if was_ours:
                self._wake_on(number)
            raise
        return signal.SIG_DFL if previous is self._handler else previous

    def _is_ours(self, number: int) -> bool:
        return self._getsignal(number) is self._handler

    def _take(self, number: int) -> None:
        self._signal(number, self._handler)
        self._wake_on(number)

    # -- answering -----------------------------------------------------------------------------

    @contextmanager
    def postponing(self) -> Iterator[None]:
        """See `answered_afterwards`; on the main thread."""
        self._postponing += 1
        try:
            yield
        finally:
            self._postponing -= 1
            if self._postponed is not None and not self._postponing:
                number, self._postponed = self._postponed, None
                self._answer(number)

    def _arrived(self, number: int, _: FrameType | None) -> None:
        """Python's handler, on the main thread."""
        if self._postponing and self._postponed is None and not self._claim.locked():
            self._postponed = signal.Signals(number)
            self._answering = threading.get_ident(), time.monotonic()
            self._answered.set()
        elif self._postponed is None:
            self._answer(signal.Signals(number))
        elif self._is_impatient():
            die_by(signal.Signals(number))

    def _answer(self, number: signal.Signals) -> None:
        if self._claim.acquire(blocking=False):
            self._answering = threading.get_ident(), time.monotonic()
            self._answered.set()
            if self._end(number):
                die_by(number)
            return
        thread, _ = self._answering
        if thread != threading.get_ident():
            # The main thread came back from C: the program is over.
            wait_for_the_end()
        if self._is_impatient():
            die_by(number)

    def _is_impatient(self) -> bool:
        """Whether a second signal is another wish: whoever sends it again does not want to wait.

        But `timeout` sends it twice at once, to us and to our group.
        """
        _, since_s = self._answering
        return time.monotonic() - since_s > _AT_ONCE_S

    def _open_pipes(self) -> None:
        # Without a descriptor left a program in C is ended when it comes back from there.
        with suppress(OSError):
            for number in self._handled:
                readable, writable = os.pipe()
                # A handler must never wait.
                os.set_blocking(writable, False)
                self._pipes[readable] = signal.Signals(number)
                self._writable[number] = writable
        if self._pipes:
            # Not a threading.Thread: the program would see it there.
            with suppress(RuntimeError):
                start_new_thread(self._watch, ())

    def _wake_on(self, number: int) -> None:
        if number in self._writable:
            writable = self._writable[number]
            faulthandler.register(number, file=writable, all_threads=False, chain=True)

    def _watch(self) -> None:
        poll = select.poll()
        for readable in self._pipes:
            poll.register(readable, select.POLLIN)
        readable, events = poll.poll()[0]
        number = self._pipes[readable]
        if not events & select.POLLIN:
            # The program closed every descriptor that it did not know, and may have opened others.
            for closed in self._writable:
                faulthandler.unregister(closed)
            return
        if not main_thread_answers(self._answered):
            # Python could not act on a second one, so that acts as if nobody handled it.
            _restore_default_action(number)
            self._answer(number)
        time.sleep(_GRACE_S)
        die_by(number)


@contextmanager
def answered_afterwards() -> Iterator[None]:
    """A signal that comes to the main thread within this context is answered at its end.

    What is done here is not done halfway, and cannot be done again: to end a profile and to write
    it, to hand it to the process that stores it. A second signal does not wait.
    """
    current = _current
    if current is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    with current.postponing():
        yield


def die_by(number: signal.Signals) -> NoReturn:
    """End this process by the default action of `number`, on any thread."""
    _restore_default_action(number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    # It may be delivered to another thread.
    wait_for_the_end()


def wait_for_the_end() -> NoReturn:
    """Let the calling thread do nothing more while another ends the process."""
    while True:
        time.sleep(_GRACE_S)


def _restore_default_action(number: signal.Signals) -> None:
    faulthandler.unregister(number)
    # signal.signal works on the main thread alone.
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    libc.signal(number, None)


def _install_hooks_for_forks() -> None:
    """A signal that reaches a child before it has left our handlers must wait until then."""
    global _hooks_for_forks_installed
    if _hooks_for_forks_installed:
        return
    _hooks_for_forks_installed = True

    def before() -> None:
        _forking.mask = None
        if _current is not None:
            _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)

    def after() -> None:
        if _forking.mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)

    def after_in_child() -> None:
        if _current is not None:
            _current.leave()
        after()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after_in_child)
