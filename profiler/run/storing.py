"""Stores what a run has seen, once, whoever ends the program and in whatever state it left us.

Nothing here may change how the program ends: what cannot be stored is one line. Only where the
program ended well and its capture is lost does whoever started it see that by the exit code.
"""

import threading
from contextlib import redirect_stderr
from typing import Protocol

from gpuprof.collectors.errors import describe
from gpuprof.collectors.manifest import Ending
from gpuprof.profiler.run.recorded import Recorded
from gpuprof.profiler.run.storing_process import StoringProcess
from gpuprof.profiler.run.surroundings import (
    ample_recursion,
    enough_address_space,
    flush,
    handlers_at_rest,
)
from gpuprof.reports.console.streams import own_stderr, write_note


class ProgramWatch(Protocol):
    """What watches the program."""

    def finish(self, ending: Ending, exit_code: int) -> Recorded | None:
        """Stop watching and return what is to be stored; None where nothing is."""

    def close(self) -> None:
        """Remove the traces, and restore what was replaced."""


class Storing:
    """Ends a recording and has it stored and told about."""

    def __init__(self, watch: ProgramWatch, process: StoringProcess, *, quiet: bool) -> None:
        self.claimed = threading.Event()
        self.done = threading.Event()
        self._watch = watch
        self._process = process
        self._quiet = quiet
        # By a second Ctrl-C, or one while the capture was stored.
        self.interrupted = False
        self._lost = False
        self._hurry = threading.Event()
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

    def hurry(self) -> None:
        """Do not wait for other ranks any longer."""
        self._hurry.set()
        self._process.hurry()

    def exit_code(self, status: int) -> int:
        """What to exit with where the program exits with `status`."""
        return status or int(self._lost)

    @property
    def on_this_thread(self) -> bool:
        """Whether the calling thread is the one that stores, or has stored."""
        return self._thread == threading.get_ident()

    def _store(self, ending: Ending, status: int) -> None:
        try:
            with enough_address_space():
                recorded = self._finish(ending, status)
                if recorded is not None:
                    done = self._process.store_final(recorded, quiet=self._quiet)
                    self._lost = self._store_here(recorded) if done is None else done.lost
        except BaseException as error:
            self._lost = True
            self.interrupted = isinstance(error, KeyboardInterrupt)
            write_note(f"gpuprof: {self._what_is_left(error)}")
        finally:
            self._process.close()
            self._watch.close()

    def _what_is_left(self, error: BaseException) -> str:
        self._process.take_early()
        why = "interrupted" if self.interrupted else describe(error)
        early = self._process.stored_early
        if early is None:
            return f"the capture could not be stored: {why}"
        return f"the whole run could not be stored: {why}; {early} has its profiled steps"

    def _finish(self, ending: Ending, status: int) -> Recorded | None:
        recorded = self._watch.finish(ending, status)
        problem = self._process.take_early()
        if problem and recorded is not None:
            warning = f"nothing was stored after the profiled steps: {problem}"
            recorded.seen.warnings.append(warning)
        return recorded

    def _store_here(self, recorded: Recorded) -> bool:
        # Where the process can't be had, what it would have imported comes into the program's.
        from gpuprof.profiler.run.telling import store_and_tell

        return not store_and_tell(recorded, quiet=self._quiet, hurry=self._hurry)
