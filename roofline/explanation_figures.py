"""What is known of one operator or kernel: parts of an `Analysis`.

Frozen structs; unknown is None, "" or (). Times are integer nanoseconds, fractions are of 1.
"""

import msgspec

from gpuprof.roofline.checklist_figures import KernelCheck
from gpuprof.roofline.kernel_names.decode import KernelName


class TimeSpread(msgspec.Struct, frozen=True, kw_only=True):
    """How long each of several calls or launches took on the device."""

    number: int
    total_ns: int
    minimum_ns: int
    median_ns: int
    # The interquartile range; None of fewer than four.
    quartiles_ns: tuple[int, int] | None = None
    maximum_ns: int


class LaunchConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """Launches of a kernel with one configuration."""

    number: int
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers_per_thread: int | None = None
    # Static and dynamic, of a block.
    shared_bytes: int | None = None
    # Of the warps that a multiprocessor can hold, by registers, shared memory, warps and blocks.
    occupancy: float | None = None
    # Blocks that fit on a multiprocessor at a time, and what keeps others out.
    blocks_per_multiprocessor: int | None = None
    limited_by: tuple[str, ...] = ()
    # How many times the grid fills the device.
    waves: float | None = None


class ExplainedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel of the work, its launches with the largest number first."""

    name: str
    kind: str
    # sole, main, helper or shared; "" where no operator owns it.
    role: str = ""
    decoded: KernelName | None = None
    launches: tuple[LaunchConfiguration, ...] = ()
    time: TimeSpread
    # What may keep it from its roof, and how many of its launches were counted for that.
    checks: tuple[KernelCheck, ...] = ()
    counted: int = 0


class Condition(msgspec.Struct, frozen=True):
    """One condition of a backend that does not hold, or is not known to."""

    text: str
    # What the call has instead, as it was recorded; "" where that is not known.
    recorded: str
    # How the program can meet it; "" where it cannot.
    remedy: str
    source: str


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """An implementation that torch could have called, and did not."""

    name: str
    # What keeps it from running.
    violated: tuple[Condition, ...] = ()
    # Conditions that the recorded arguments do not tell.
    unknown: tuple[str, ...] = ()


class Dispatch(msgspec.Struct, frozen=True, kw_only=True):
    """Which implementation of an operator torch chose, and why no other one."""

    operator: str
    ran: str
    others: tuple[Backend, ...] = ()
    notes: tuple[str, ...] = ()
    source: str


class CounterValue(msgspec.Struct, frozen=True):
    """A hardware counter, the mean over the launches that were counted."""

    name: str
    metric: str
    value: float
    unit: str
    launches: int


class Unknown(msgspec.Struct, frozen=True):
    """Something that this capture does not hold, and what would tell it."""

    what: str
    told_by: str


class Caller(msgspec.Struct, frozen=True):
    """A line of Python that leads to some device work, and those that it calls."""

    # "train.py:42 Block.forward"; "?" stands for the line where only the function is known.
    frame: str
    # Of the time of the work.
    fraction: float
    # The largest first; none of less than half a percent.
    called: "tuple[Caller, ...]" = ()


class WorkLayers(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one operator or kernel beside the figures of its row."""

    # The path of the module that calls it; "" where that is not known. Where calls differ, that of
    # most of them and how many others there are.
    module: str = ""
    # "train.py:42 in forward", as of module.
    line: str = ""
    # Operators around it and itself, the outermost first; of the first call.
    called_by: tuple[str, ...] = ()
    # The Python frames that lead to it, where whole stacks were recorded, from the outermost on.
    callers: tuple[Caller, ...] = ()
    dispatch: Dispatch | None = None
    # The largest first.
    kernels: tuple[ExplainedKernel, ...] = ()
    # Of calls of an operator with all their kernels; of a kernel's launches.
    time: TimeSpread | None = None
    counters: tuple[CounterValue, ...] = ()
    # Counters of it that are in the capture and not among these.
    further_counters: int = 0
    unknown: tuple[Unknown, ...] = ()


class ExplainedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """One of the largest operators of an analysis."""

    # Its index in the analysis' `ops`.
    op: int
    layers: WorkLayers
