"""Answers about captures, where they are no struct of the analysis."""

from typing import Any

import msgspec

from gpuprof.collectors.manifest import Device
from gpuprof.reports.json_answers.cannot_answer import CannotAnswer
from gpuprof.reports.sections.headline import headline
from gpuprof.roofline.advice_figures import Advice, Binding
from gpuprof.roofline.analysis import (
    Analysis,
    Bottleneck,
    Coverage,
    RooflinePoint,
    Utilization,
)
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.step_figures import StepSplit, StepTimes

_MOST_KERNELS = 10
_SHARED = frozenset(Analysis.__struct_fields__)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an analysis that its summary shows, with the first sentence."""

    headline: str
    title: str
    created_ns: int
    rank: int
    world_size: int
    command: tuple[str, ...]
    device: Device | None
    steps: StepTimes
    utilization: Utilization | None
    split: StepSplit | None
    bottleneck: Bottleneck
    binds: Binding | None
    advice: tuple[Advice, ...]
    # The ten with most device time.
    kernels: tuple[RooflinePoint, ...]
    kernels_left_out: int
    coverage: Coverage
    peak_memory_bytes: int | None
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, analysis: Analysis) -> "Summary":
        """That of `analysis`."""
        kernels = analysis.kernels
        own = {name: getattr(analysis, name) for name in cls.__struct_fields__ if name in _SHARED}
        return cls(
            **{**own, "kernels": kernels[:_MOST_KERNELS]},
            headline=headline(analysis).sentence,
            kernels_left_out=max(0, len(kernels) - _MOST_KERNELS),
        )


class Matches(msgspec.Struct, frozen=True):
    """Of a name, the operators and kernels that it may mean; the first has the number 1."""

    matches: tuple[RooflinePoint, ...]


class WrittenFiles(msgspec.Struct, frozen=True):
    """What was written."""

    files: tuple[str, ...]


class SentRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a tracker of experiments was sent, and where that is to be seen."""

    tracker: str
    place: str
    # By name, as in `TrackedRun`.
    figures: dict[str, float]


class Repro(msgspec.Struct, frozen=True, kw_only=True):
    """A script that runs one operator again, and the call that it makes."""

    file: str
    operator: str
    # As torch.ops has it.
    overload: str
    # The lists of shapes and types as they were recorded.
    detail: str
    # Its number among the calls that the name has, those with most device time first.
    number: int
    numbers: int
    calls: int
    median_ns: int
    # Of one call; None where a part of its work has no model.
    flops: tuple[Flops, ...] | None
    bytes_read: int | None
    bytes_written: int | None
    # Arguments that were not recorded, and are left to their defaults.
    defaults: tuple[str, ...]


class AgentAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a tool of `gpuprof mcp` answers: one of the two."""

    answer: Any = None
    cannot_answer: CannotAnswer | None = None
