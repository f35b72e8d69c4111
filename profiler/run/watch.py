"""Watches a program from its start, and records it from the moment that it has torch."""

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpuprof.collectors.errors import reason
from gpuprof.collectors.host_identity import host_identity
from gpuprof.collectors.live.fingerprint import collect_fingerprint
from gpuprof.collectors.live.module_import import once_imported
from gpuprof.collectors.live.peak_memory import peak_resident_bytes
from gpuprof.collectors.live.script_errors import is_ours
from gpuprof.collectors.live.unix_clock import UnixClock
from gpuprof.collectors.manifest import Ending, ProcessInfo
from gpuprof.profiler.run import current_session
from gpuprof.profiler.run.live_state import LiveState
from gpuprof.profiler.run.observations import Observations
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.profiler.run.recorded import Recorded, Subject
from gpuprof.profiler.run.session_options import SessionOptions

if TYPE_CHECKING:
    from gpuprof.profiler.run.recording import Recording


class Watch:
    """What `gpuprof run` knows of a program, which may never import torch."""

    def __init__(
        self,
        subject: Subject,
        options: SessionOptions,
        *,
        store_early: Callable[[Recorded], None] | None,
        live: LiveState | None = None,
    ) -> None:
        """`store_early` and `live`: as in `Recording`."""
        self.subject = subject
        self._options = options
        self._store_early = store_early
        self._live = live
        self.ranks = Ranks.from_environment()
        self._clock = UnixClock()
        self._seen = Observations(started_ns=self._clock.now_ns())
        self._recording: Recording | None = None
        # As in `ProcessInfo`. Names, because an exception holds all that its frames hold.
        self.exceptions: tuple[str, ...] = ()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The program runs within this context."""
        current_session.begin = _import_torch
        try:
            with once_imported("torch", self._begin):
                yield
        finally:
            current_session.begin = None

    def _begin(self) -> None:
        current_session.begin = None
        try:
            # What needs torch is imported with it.
            from gpuprof.profiler.run.recording import Recording

            self._recording = Recording(
                self.subject,
                self._options,
                ranks=self.ranks,
                store_early=self._store_early,
                live=self._live,
            )
        except BaseException as error:
            if not is_ours(error):
                raise
            self._seen.warnings.append(f"nothing was recorded: {reason(error)}")
        else:
            self._recording.start()

    def finish(self, ending: Ending, exit_code: int) -> Recorded:
        """Stop watching and return what was recorded; `close` must follow once it is stored."""
        if self._live is not None:
            self._live.enter("storing")
        if self._recording is not None:
            return self._recording.finish(ending, exit_code, self.exceptions)
        self._seen.ended_ns = self._clock.now_ns()
        process = ProcessInfo(
            rank=self.ranks.rank,
            world_size=self.ranks.world_size,
            process=os.getpid(),
            host=host_identity(platform.node()),
            command=self.subject.command,
            exit_code=exit_code,
            ending=ending,
            fingerprint=collect_fingerprint(import_torch=False),
            schedule=self._options.schedule,
            peak_memory_bytes=peak_resident_bytes(),
            exceptions=self.exceptions,
        )
        return Recorded(self.subject, self.ranks, self._seen, process)

    def close(self) -> None:
        """Remove the traces, and restore what was replaced."""
        if self._recording is not None:
            self._recording.close()


def _import_torch() -> None:
    """As the program's own import does, this begins the recording."""
    current_session.begin = None
    import torch  # noqa: F401
