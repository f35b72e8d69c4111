"""The signal by which `gpuprof snap` asks a waiting program, out of the program's sight.

Only a signal that nobody handles is taken. What the program asks `signal` is answered as if there
were no handler, and one that it installs takes the place of ours: the signal is the program's then.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.run.visible_signals import program_sees

DEFAULT: Final = signal.SIGUSR2
_PREFIX: Final = "SIG"
_REAL_TIME: Final = "RTMIN+"
_installed: "RequestSignal | None" = None
_hook_for_forks_installed = False


def signal_number(text: str) -> int:
    """The number of USR1, SIGUSR2, RTMIN+3 and so on.

    Raises `ValueError` for a signal that means something else.
    """
    name = text.upper().removeprefix(_PREFIX)
    if name in ("USR1", "USR2"):
        return getattr(signal, f"SIG{name}").value  # type: ignore[no-any-return]
    first, last = getattr(signal, "SIGRTMIN", 0), getattr(signal, "SIGRTMAX", -1)
    number = name.removeprefix(_REAL_TIME)
    if name.startswith(_REAL_TIME) and number.isdecimal() and first + int(number) <= last:
        return int(first) + int(number)
    raise ValueError(f"{text!r} is not USR1, USR2 or RTMIN+N with N up to {last - first}")


def signal_name(number: int) -> str:
    """As `signal_number` reads it, with SIG."""
    if number in (signal.SIGUSR1, signal.SIGUSR2):
        return signal.Signals(number).name
    return f"SIGRTMIN+{number - signal.SIGRTMIN}"


class RequestSignal:
    """Hears requests while the program runs."""

    def __init__(
        self,
        number: int,
        asked: Callable[[FrameType | None], None],
        taken: Callable[[], None],
    ) -> None:
        """`asked` runs on the main thread, in what was interrupted there.

        `taken` is called where the program installs a handler of its own.
        """
        self._number = number
        self._asked = asked
        self._taken = taken
        self._handler = self._arrived
        self._signal: Any = signal.signal
        self._getsignal: Any = signal.getsignal

    def refuse_taken(self) -> None:
        """Raise `CommandError` where the signal means something already."""
        if signal.getsignal(self._number) != signal.SIG_DFL:
            name = signal_name(self._number)
            raise CommandError(
                f"{name} is handled or ignored already; choose another with --signal"
            )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within this context requests are heard. To be entered on the main thread."""
        global _installed
        self._signal, self._getsignal = signal.signal, signal.getsignal
        _install_hook_for_forks()
        self._signal(self._number, self._handler)
        # What the program's libraries wait for in C is begun again, not failed.
        signal.siginterrupt(self._number, False)
        _installed = self
        try:
            with program_sees(self._visible_signal, self._visible_getsignal):
                yield
        finally:
            self.leave()

    def leave(self) -> None:
        """Give the signal back if it is ours still; also in a forked child."""
        global _installed
        _installed = None
        if self._is_ours():
            self._signal(self._number, signal.SIG_DFL)

    def _is_ours(self) -> bool:
        return bool(self._getsignal(self._number) == self._handler)

    def _arrived(self, _: int, frame: FrameType | None) -> None:
        self._asked(frame)

    def _visible_getsignal(self, number: int) -> Any:
        handler = self._getsignal(number)
        return signal.SIG_DFL if handler == self._handler else handler

    def _visible_signal(self, number: int, handler: Any) -> Any:
        if number != self._number or not self._is_ours():
            return self._signal(number, handler)
        if handler == signal.SIG_DFL:
            # As it is already, for all that the program sees.
            return signal.SIG_DFL
        self._signal(number, handler)
        self._taken()
        return signal.SIG_DFL


def _install_hook_for_forks() -> None:
    global _hook_for_forks_installed
    if _hook_for_forks_installed:
        return
    _hook_for_forks_installed = True

    def after_in_child() -> None:
        if _installed is not None:
            _installed.leave()

    os.register_at_fork(after_in_child=after_in_child)
