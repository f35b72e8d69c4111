"""Draws the line on the terminal while a program runs, from a process that the program never meets.

It is forked from the process that stores the capture. What the program does is in shared memory;
the line goes when that process asks, when the program has ended, or when the terminal is gone.
"""

import os
import select
import socket
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TextIO

from gpuprof.collectors.live.unix_clock import monotonic_ns
from gpuprof.profiler.run.live_state import LiveReading, LiveState
from gpuprof.profiler.run.storing_messages import ShowLine
from gpuprof.reports.console.bottom_line import BottomLine
from gpuprof.reports.live_line import LiveLine, live_line

if TYPE_CHECKING:
    from gpuprof.roofline.analysis import Analysis

_INTERVAL_S: Final = 0.25
# The step time is the mean over so long, or of the last step where that is longer.
_WINDOW_NS: Final = 2_000_000_000
# Where a terminal is stopped (Ctrl-S) nothing waits longer for the line to go.
_PATIENCE_S: Final = 1.0


class LiveDrawing:
    """The side of the process that stores: the line from now until `stop`."""

    def __init__(self, message: ShowLine, terminal: TextIO) -> None:
        self.state = LiveState(message.state)
        self._connection, theirs = socket.socketpair()
        line = BottomLine(terminal, message.process)
        if os.fork() == 0:
            try:
                self._connection.close()
                _draw(self.state, message, line, theirs)
            finally:
                os._exit(0)
        theirs.close()

    def know(self, analysis: "Analysis") -> None:
        """What the profiled steps did tells what the device's peak would make of a step."""
        use = analysis.utilization
        if use is not None and use.mfu:
            self.state.know_full_speed(use.mfu * use.step_ns)

    def stop(self) -> None:
        """Remove the line, and return once it is gone. A forked child may do that too."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
            self._connection.settimeout(_PATIENCE_S)
            self._connection.recv(1)
        self._connection.close()


def _draw(state: LiveState, message: ShowLine, line: BottomLine, asked: socket.socket) -> None:
    poll = select.poll()
    poll.register(asked.fileno(), select.POLLIN)
    with suppress(AttributeError, OSError):
        # Readable once the program's process has ended.
        poll.register(os.pidfd_open(message.process), select.POLLIN)
    begun_ns = monotonic_ns()
    rate = StepRate()
    shown = ""
    try:
        while not poll.poll(_INTERVAL_S * 1000):
            text = live_line(_line(state.read(), message, rate, monotonic_ns() - begun_ns))
            # Once a second at least, as the time is in it: a program may have cleared the screen.
            if text != shown:
                line.show(text)
                shown = text
    except OSError:
        # The terminal is gone.
        return
    finally:
        line.hide()


def _line(reading: LiveReading, message: ShowLine, rate: "StepRate", elapsed_ns: int) -> LiveLine:
    step_ns = rate.step_ns(reading)
    full_speed_ns = reading.full_speed_step_ns
    return LiveLine(
        phase=reading.phase,
        elapsed_s=elapsed_ns / 1e9,
        steps=reading.steps,
        steps_of_phase=reading.steps_of_phase,
        planned_steps=message.planned_steps.get(reading.phase),
        step_ns=step_ns,
        mfu=full_speed_ns / step_ns if full_speed_ns and step_ns else None,
        device=reading.device,
        sm_clock_mhz=reading.sm_clock_mhz,
        power_milliwatts=reading.power_milliwatts,
    )


class StepRate:
    """How long steps take of late, by how many ended between two looks."""

    def __init__(self) -> None:
        # Steps and the end of the last one, of one phase.
        self._looks: deque[tuple[int, int]] = deque()
        self._phase = ""

    def step_ns(self, reading: LiveReading) -> float | None:
        """The mean of the last steps of the phase; None before one of them has ended."""
        look = (reading.steps, reading.step_end_ns)
        if reading.phase != self._phase or (self._looks and look[0] < self._looks[-1][0]):
            self._phase = reading.phase
            self._looks.clear()
        if not self._looks or look[0] > self._looks[-1][0]:
            self._looks.append(look)
        while len(self._looks) > 2 and look[1] - self._looks[1][1] >= _WINDOW_NS:
            self._looks.popleft()
        (first_steps, first_ns), (last_steps, last_ns) = self._looks[0], self._looks[-1]
        if last_steps == first_steps:
            return None
        return (last_ns - first_ns) / (last_steps - first_steps)
