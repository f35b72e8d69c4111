"""The steps of a program that waits, found once: counted, timed by the host, and passed on."""

import os
from collections.abc import Callable

from gpuprof.collectors.live import cuda, nvtx_ranges
from gpuprof.collectors.live.unix_clock import monotonic_ns
from gpuprof.collectors.steps.finder import StepFinder, StepListener
from gpuprof.collectors.steps.sources import ExplicitSteps, Mark, StepCallback
from gpuprof.profiler.run.session_options import SessionOptions
from gpuprof.profiler.run.step_sources import step_sources


class ProgramSteps:
    """Watches from `install` on. What `gpuprof.step()` says reaches it through `step`."""

    def __init__(self, options: SessionOptions, on_step: Callable[[int, int | None], None]) -> None:
        """`on_step` is told after each step how many have ended, and how long the last one took.

        In nanoseconds, None where its beginning was not seen. Not while a session listens.
        """
        self.explicit = ExplicitSteps()
        # That have ended.
        self.steps = 0
        self._on_step = on_step
        self._finder = StepFinder(step_sources(options, self.explicit), self)
        self._settled = False
        self._listener: StepListener | None = None
        self._last_ns: int | None = None
        self._process = os.getpid()

    def install(self) -> None:
        """Begin to look for steps."""
        nvtx_ranges.install()
        self._finder.install()

    def remove(self) -> None:
        """Look for them no longer."""
        self._finder.remove()

    def step(self, tokens: int | None) -> None:
        """What `gpuprof.step()` says."""
        self.explicit.step(tokens)

    def told_to(self, listener: StepListener) -> "_Search":
        """See `FoundSteps`."""
        return _Search(self, self._finder, listener)

    def restarted(self, mark: Mark) -> None:
        """See `StepListener`."""
        self._settled = False
        self.steps = int(mark.source.marks_end)
        self._last_ns = monotonic_ns()
        if self._listener is not None:
            self._listener.restarted(mark)

    def boundary(self, mark: Mark) -> None:
        """See `StepListener`."""
        if os.getpid() != self._process or cuda.is_capturing_a_graph():
            return
        self.steps += 1
        if self._listener is None:
            self._step_while_waiting()
        # A session that this step began has its first boundary here.
        if self._listener is not None:
            self._last_ns = None
            self._listener.boundary(mark)

    def _step_while_waiting(self) -> None:
        now_ns, last_ns = monotonic_ns(), self._last_ns
        self._last_ns = now_ns
        if not self._settled and self._finder.may_settle():
            self.settle()
        self._on_step(self.steps, None if last_ns is None else now_ns - last_ns)

    def listen(self, listener: StepListener | None) -> None:
        """Tell `listener`, and nobody else."""
        self._listener = listener

    def may_settle(self) -> bool:
        """Whether the marks can be trusted to be the steps."""
        return self._settled or self._finder.may_settle()

    def settle(self) -> None:
        """Watch only what marks the steps, and sources of more trust."""
        if not self._settled:
            self._settled = True
            self._finder.settle()


class _Search:
    """A `StepSearch` of one session: looking for steps goes on when it is over."""

    def __init__(self, steps: ProgramSteps, finder: StepFinder, listener: StepListener) -> None:
        self._steps = steps
        self._finder = finder
        self._listener = listener
        self.may_settle = steps.may_settle
        self.settle = steps.settle
        self.leads_within_a_step = finder.leads_within_a_step

    @property
    def leader(self) -> Mark | None:
        """See `StepFinder`."""
        return self._finder.leader

    def install(self) -> None:
        """See `StepSearch`."""
        self._steps.listen(self._listener)

    def reduce_to(self, step: StepCallback) -> None:
        """See `StepSearch`. The session ends here, and the search goes on."""

    def remove(self) -> None:
        """See `StepSearch`."""
        self._steps.listen(None)
