"""The public Python API: profile a part of a program from inside it.

A program may import this before it sets the variables that torch reads, so torch is left alone
until a block begins.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from gpuprof.collectors import storage
from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.live.script_errors import exception_names
from gpuprof.collectors.manifest import Schedule
from gpuprof.profiler.commands.step_options import STEP_KINDS
from gpuprof.profiler.configuration.file import apply_configuration
from gpuprof.profiler.run import current_session
from gpuprof.profiler.run.output import CaptureOutput, choose_output
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.profiler.run.recorded import Subject
from gpuprof.profiler.run.session_options import SessionOptions
from gpuprof.reports.console.streams import write_note

if TYPE_CHECKING:
    from gpuprof.collectors.capture import Capture
    from gpuprof.profiler.run.recording import Recording
    from gpuprof.roofline.analysis import Analysis

P = ParamSpec("P")
R = TypeVar("R")


class profile:
    """Profile what runs inside, as a context manager or a decorator.

        with gpuprof.profile("train.gpuprof") as profiled:
            for batch in batches:
                train_step(batch)
        print(profiled.analysis.utilization)

    Steps are found as `gpuprof run` finds them; `warmup`, `timed` and `profiled` are numbers of
    steps. Without `warmup` there are three, and until a GPU has worked for 2 s; without `timed`
    ten, and until a GPU has done them for 0.3 s. With `watch` every step after these is looked at,
    as `gpuprof run --watch` does. The capture is stored at `output` when the block ends, also when
    it raises. Inside `gpuprof run`, or inside another profile, the block joins what already
    records: nothing is stored, and `analysis` and `capture` stay None.

    Raises `CommandError` for numbers or kinds of steps that do not exist, and, before the block
    runs, where `output` exists and `force` is not given.
    """

    def __init__(
        self,
        output: str | Path | None = None,
        *,
        warmup: int | None = None,
        timed: int | None = None,
        profiled: int = 3,
        steps: str | None = None,
        step_range: str | None = None,
        watch: bool = False,
        force: bool = False,
    ) -> None:
        if steps is not None and steps not in STEP_KINDS:
            raise CommandError(f"profile: steps is {steps!r}; give one of {', '.join(STEP_KINDS)}")
        if steps == "range" and step_range is None:
            raise CommandError("profile: steps='range' needs step_range=NAME")
        for what, count in (("warmup", warmup), ("timed", timed), ("profiled", profiled)):
            if count is not None and count < 0:
                raise CommandError(f"profile: {what} is {count}; give 0 or more")
        # Where the last block was stored.
        self.output: Path | None = None
        self.analysis: Analysis | None = None
        self._stored: CaptureOutput | None = None
        self._requested_output = None if output is None else Path(output)
        self._force = force
        self._schedule = partial(Schedule.of, warmup, timed, profiled)
        self._options = SessionOptions(
            steps=steps,
            step_range=step_range,
            watch=watch,
            # Who asks for no profiled steps wants no profiler at all.
            first_look=profiled > 0,
        )
        # One for each block that is open, None where it joined: a decorated function may recurse.
        self._recordings: list[Recording | None] = []

    def __enter__(self) -> "profile":
        # First, because the session of `gpuprof run` begins with it.
        import torch  # noqa: F401

        from gpuprof.profiler.run.recording import Recording
        from gpuprof.profiler.run.store_recorded import analysed_early, store_early

        if current_session.current is not None:
            self._recordings.append(None)
            return self
        ranks = Ranks.in_program()
        output = choose_output(self._requested_output, "profile", force=self._force, ranks=ranks)
        output.refuse_existing()
        apply_configuration()
        title = output.requested.stem
        subject = Subject(output, title, source="gpuprof.profile", command=())
        recording = Recording(
            subject,
            replace(self._options, schedule=self._schedule(alone=ranks.alone)),
            ranks=ranks,
            store_early=lambda recorded: store_early(recorded, analysed_early(recorded)),
        )
        recording.start()
        self._recordings.append(recording)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recording = self._recordings.pop()
        # A forked child that leaves the block must not store what its parent records.
        if recording is None or not recording.session.active:
            return
        from gpuprof.profiler.run.store_recorded import store_final

        failed = error is not None
        try:
            recorded = recording.finish(
                "exception" if failed else "finished", int(failed), exception_names(error)
            )
            analysed = store_final(recorded).analysed
        finally:
            recording.close()
        self.analysis = analysed.analysis
        self._stored = recording.subject.output
        self.output = self._stored.shown
        if analysed.problem:
            write_note(f"gpuprof: {analysed.problem_sentence(self.output)}")

    def _repr_html_(self) -> str | None:
        """The report, in a notebook; None before the block has ended, or where it joined."""
        if self.analysis is None:
            return None
        from gpuprof.reports.html.notebook import notebook_html

        return notebook_html(self.analysis, self.output)

    @property
    def capture(self) -> "Capture | None":
        """The stored capture, once the block has ended."""
        if self._stored is None or not self._stored.stored:
            return None
        return storage.load(self._stored.path)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def profiled(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return profiled
