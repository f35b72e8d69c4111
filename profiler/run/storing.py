"""Stores what a run has seen, once, whoever ends the program and in whatever state it left us.

Nothing here may change how the program ends: what cannot be stored is one line.
"""

import threading
from contextlib import redirect_stderr
from functools import partial

from gpuprof.collectors.errors import GpuprofError, reason
from gpuprof.collectors.manifest import ENDED_BY_A_SIGNAL, Calibration, Device, Ending
from gpuprof.profiler.machine import calibration_cache
from gpuprof.profiler.run.recording import Recording
from gpuprof.profiler.run.surroundings import (
    ample_recursion,
    enough_address_space,
    flush,
    handlers_at_rest,
    own_stderr,
)
from gpuprof.reports.console.streams import write_note
from gpuprof.reports.console.terminal import stderr
from gpuprof.reports.terminal import render_summary
from gpuprof.roofline.analysis import Analysis


class Storing:
    """Ends a recording and tells about it."""

    def __init__(self, recording: Recording, *, quiet: bool) -> None:
        self.claimed = threading.Event()
        self.done = threading.Event()
        self._recording = recording
        self._quiet = quiet
        self._claim = threading.Lock()
        self._thread: int | None = None
        self._stderr = own_stderr()

    def store(self, ending: Ending, status: int) -> bool:
        """Store the capture and print its summary; False where that is under way already."""
        if not self._claim.acquire(blocking=False):
            return False
        self._thread = threading.get_ident()
        self.claimed.set()
        try:
            with redirect_stderr(self._stderr), handlers_at_rest(), ample_recursion():
                self._store(ending, status)
        finally:
            flush(self._stderr)
            self.done.set()
        return True

    @property
    def on_this_thread(self) -> bool:
        """Whether the calling thread is the one that stores, or has stored."""
        return self._thread == threading.get_ident()

    def _store(self, ending: Ending, status: int) -> None:
        output = self._recording.subject.output
        # Whoever asked the program to go does not want to wait.
        calibrate = None if ending in ENDED_BY_A_SIGNAL else partial(_calibrate, self._quiet)
        try:
            with enough_address_space():
                analysis = self._recording.finish(ending, status, calibrate=calibrate)
        except BaseException as error:
            _tell(f"the capture could not be stored: {_reason(error)}")
            return
        if not output.stored:
            return
        if output.moved:
            _tell(f"{output.requested} was not free; the capture is {output.shown}")
        if not self._quiet:
            self._print_summary(analysis)

    def _print_summary(self, analysis: Analysis) -> None:
        output = self._recording.subject.output
        try:
            render_summary(analysis, stderr(), output.shown)
        except BaseException as error:
            _tell(f"the summary of {output.shown} could not be printed: {_reason(error)}")


def _calibrate(quiet: bool, device: Device) -> Calibration:
    if not quiet:
        _tell("measuring once what this CPU can do (gpuprof calibrate)")
    return calibration_cache.calibrate_cached(device)


def _tell(sentence: str) -> None:
    write_note(f"gpuprof: {sentence}")


def _reason(error: BaseException) -> str:
    """One line; what only we raise, and the system, explains itself."""
    if isinstance(error, (GpuprofError, OSError)):
        return reason(error)
    return f"{type(error).__name__}: {reason(error)}"
