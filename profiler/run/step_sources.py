"""Which sources of steps a session listens to."""

from collections.abc import Sequence
from typing import Protocol

from gpuprof.collectors.live import torch_trace
from gpuprof.collectors.steps.finder import StepListener, StepSearch
from gpuprof.collectors.steps.forward_calls import ForwardCalls
from gpuprof.collectors.steps.sources import (
    ExplicitSteps,
    GraphReplays,
    OptimizerSteps,
    ProfilerSteps,
    RangeSteps,
    StepSource,
)
from gpuprof.profiler.run.session_options import SessionOptions


class FoundSteps(Protocol):
    """The steps of this process, for several sessions one after another."""

    # What `gpuprof.step()` reaches.
    explicit: ExplicitSteps

    def told_to(self, listener: StepListener) -> StepSearch:
        """Through which `listener` is told of them, once installed."""


def step_sources(options: SessionOptions, explicit: ExplicitSteps) -> Sequence[StepSource]:
    """The sources that `options` ask for, the surest first."""
    sources: list[StepSource] = [explicit, ProfilerSteps(torch_trace.own_profilers)]
    if options.step_range is not None:
        sources.append(RangeSteps(options.step_range))
    sources += [OptimizerSteps(), ForwardCalls(), GraphReplays()]
    if options.steps is None:
        return sources
    return [source for source in sources if source.name == options.steps]
