"""Comparison: what changed from one analysis (the base) to another (the head).

Frozen structs, written as JSON. Times are nanoseconds of one step, and changes are head minus base:
positive is slower. Unknown is None.
"""

from typing import Literal

import msgspec

from gpuprof.roofline.analysis import DeviceState
from gpuprof.roofline.classes import ClassName
from gpuprof.roofline.comparison.kernel_changes import KernelChange
from gpuprof.roofline.comparison.kinds import KindChange
from gpuprof.roofline.comparison.lines import LineChange
from gpuprof.roofline.comparison.main_cause import MainCause
from gpuprof.roofline.comparison.modules import ModuleChange
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.machine.ceilings import Ceiling, Source
from gpuprof.roofline.step_figures import StepSplit

COMPARISON_SCHEMA_VERSION = 2

Quantity = Literal["step time", "profiled step time", "whole trace", "device time"]


class Lengths(msgspec.Struct, frozen=True):
    """A time before and after; `quantity` says of what."""

    quantity: Quantity
    base_ns: int
    head_ns: int

    @property
    def change_ns(self) -> int:
        """Head minus base."""
        return self.head_ns - self.base_ns

    @property
    def change(self) -> float | None:
        """As a fraction of the base."""
        return self.change_ns / self.base_ns if self.base_ns else None


class WaitingChange(msgspec.Struct, frozen=True):
    """How much longer one step waits for one cause."""

    kind: ClassName
    change_ns: float


class StepChange(msgspec.Struct, frozen=True, kw_only=True):
    """How the change of one step splits; the parts and `unexplained_ns` add up to `change_ns`."""

    # "profiled step time" where device work was not seen inside of timed steps: on a CPU, whose
    # operators the profiler stretches, and in traces without any. "device time": no step was found.
    lengths: Lengths
    # Kernels that both sides have, and those that one has. Without communication and copies
    # where the exposed time of those is known.
    matched_ns: float
    new_ns: float
    # Negative: what went away.
    removed_ns: float
    # None where an analysis does not say what is exposed; they are among the kernels then.
    communication_ns: float | None
    copies_ns: float | None
    # Without device work; None for device time. And that in words.
    idle_ns: float | None
    idle_name: str
    # By cause, the largest first, where both sides tell it of steps of one kind.
    waiting: tuple[WaitingChange, ...] = ()
    # Kernels of several streams that overlap more or less, and work outside of the kernels.
    unexplained_ns: float
    # Of the change. None where a step changed by too little to divide by.
    unexplained_share: float | None

    @property
    def change_ns(self) -> int:
        """Head minus base."""
        return self.lengths.change_ns


class ComparedSide(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the two captures is."""

    title: str
    source: str
    created_ns: int
    device: str
    rank: int
    world_size: int = 1
    # Median of the timed steps, which ran without a profiler; None where there were none.
    step_ns: int | None
    # The interquartile range over the median.
    relative_spread: float | None
    timed: int
    profiled: int
    split: StepSplit | None
    bottleneck: ClassName
    state: DeviceState | None
    # What makes its timed steps others than those of the program on a quiet, settled machine.
    doubts: tuple[str, ...] = ()
    # What the device can do, and the source of those that the percentages are of.
    ceilings: tuple[Ceiling, ...] = ()
    roof_source: Source | None = None
    # FLOPs of one step by unit and precision, of the kernels that are counted.
    flops: tuple[Flops, ...] = ()
    # Model FLOP utilization, and the label of the peak that it is of.
    mfu: float | None = None
    mfu_peak: str = ""
    # Model FLOPs of one step; None where much of the device time has no FLOP model.
    model_flops: int | None = None
    tokens_per_s: float | None = None
    # The most that tensors held at once over the whole run, on the device where that is most.
    peak_memory_bytes: int | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two analyses, compared."""

    schema_version: int = COMPARISON_SCHEMA_VERSION
    tool_version: str
    base: ComparedSide
    head: ComparedSide
    # None where neither steps nor device work can be compared.
    step: StepChange | None
    # What explains most of its change, and where that is.
    main_cause: MainCause | None = None
    # The same change by kind of time, in the order of a step's split: the changes add up to it.
    kinds: tuple[KindChange, ...] = ()
    # By line and by module of the program, the largest changes first; empty where a side does not
    # know them.
    lines: tuple[LineChange, ...] = ()
    modules: tuple[ModuleChange, ...] = ()
    # Largest change first.
    kernels: tuple[KernelChange, ...]
    # What differs between the machines and their software: strict makes times incomparable.
    strict_differences: tuple[str, ...] = ()
    advisory_differences: tuple[str, ...] = ()
    # Plain sentences on what limits the comparison.
    notes: tuple[str, ...] = ()

    @property
    def lengths(self) -> Lengths | None:
        """The step before and after: of timed steps where both sides have some."""
        if self.base.step_ns is not None and self.head.step_ns is not None:
            return Lengths("step time", self.base.step_ns, self.head.step_ns)
        return None if self.step is None else self.step.lengths

    @property
    def renamed(self) -> tuple[KernelChange, ...]:
        """Kernels that have another name now."""
        return tuple(change for change in self.kernels if change.renamed)
