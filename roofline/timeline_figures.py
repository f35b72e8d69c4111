"""What ran when in one step: a part of an `Analysis`.

Frozen structs; unknown is None. Times are integer nanoseconds after the step's start, which may be
below 0. A piece is one event, or neighbouring short ones of a lane as one.
"""

from typing import Literal

import msgspec

from gpuprof.roofline.classes import ClassName
from gpuprof.roofline.step_figures import StepDefinition

# stream: device work in the order of its stream; on a CPU the leaf operators of a thread. idle: no
# device of the process has work. The others are of the host: ranges of the program, what gpuprof
# saw the host do, the modules of the outermost operators, these, and calls of the runtime and the
# driver.
LaneKind = Literal["stream", "idle", "range", "host", "module", "operator", "call"]
# As the table of kernels has it, and the other kinds of lanes.
PieceKind = Literal[
    "kernel",
    "memcpy",
    "memset",
    "collective",
    "op",
    "idle",
    "range",
    "host",
    "module",
    "operator",
    "call",
]


# straggler: it makes others wait. slowest: none does, and it needs most time itself. waits most: in
# collectives. median: what it needs itself is the median.
RankRole = Literal["straggler", "slowest", "waits most", "median", ""]


TimelinePart = Literal["tensor cores", "DRAM", "multiprocessors"]


class TimelineLabel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What pieces say that are alike; a name of "" stands for those that have no label alone."""

    name: str
    kind: PieceKind
    # Its row among the kernels of the analysis; None outside the profiled steps and on the host.
    point: int | None = None
    # Why the device has no work, or what a call makes it wait for; "" for what only launches.
    waits: ClassName = ""
    operator: str = ""
    # As the program has it: layers.3.query.
    module: str = ""
    # "train.py:42"
    place: str = ""
    # Of an idle piece the call and the reason, of a range its domain, of a collective its size.
    detail: str = ""


class TimelineLane(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Pieces that do not overlap, in order of start: one entry a piece in every column."""

    kind: LaneKind
    # None: the analysed rank.
    rank: int | None = None
    device: int | None = None
    context: int | None = None
    stream: int | None = None
    process: int | None = None
    thread: int | None = None
    # Events that overlap or nest stand in rows below each other, from 0.
    row: int = 0
    starts_ns: tuple[int, ...] = ()
    lengths_ns: tuple[int, ...] = ()
    # Into the labels of the time line. Of several events: of those that take most of their time.
    labels: tuple[int, ...] = ()
    # How many events, and for how long there is any; both are empty where each piece is one event.
    counts: tuple[int, ...] = ()
    busy_ns: tuple[int, ...] = ()
    # Of device work: when its launch began, and in which lane of the step that is. Empty where no
    # launch is known.
    launched_ns: tuple[int | None, ...] = ()
    launched_from: tuple[int | None, ...] = ()
    # Of collectives: for how long each waits for other ranks, at its begin. Empty where none does.
    waited_ns: tuple[int, ...] = ()

    @property
    def events(self) -> int:
        """How many events its pieces are."""
        return sum(self.counts) if self.counts else len(self.starts_ns)


class TimelineActivity(msgspec.Struct, frozen=True, kw_only=True):
    """How busy a part of a device was by its counters: one entry a window in every column."""

    device: int
    part: TimelinePart
    starts_ns: tuple[int, ...]
    lengths_ns: tuple[int, ...]
    # Of the cycles; of DRAM, of what its bandwidth allows.
    percents: tuple[float, ...]

    @property
    def mean_percent(self) -> float:
        """Over all windows."""
        whole = zip(self.percents, self.lengths_ns, strict=True)
        return sum(percent * length for percent, length in whole) / sum(self.lengths_ns)


class TimelineStep(msgspec.Struct, frozen=True, kw_only=True):
    """One profiled step, or all of a trace without steps."""

    # typical: its length is nearest to the median of the profiled steps.
    role: Literal["typical", "slowest"]
    # Of the table of steps; None where nothing marks steps.
    index: int | None
    # On the clock of the capture.
    start_ns: int
    length_ns: int
    # How long before its start the lanes begin, so that they hold its launches; at most its length.
    lead_ns: int = 0
    lanes: tuple[TimelineLane, ...]
    # Empty where no counter had windows short enough.
    activities: tuple[TimelineActivity, ...] = ()
    # Events of lanes that had no room: of deeply nested ranges, or of the idlest threads.
    left_out: int = 0


class TimelineRank(msgspec.Struct, frozen=True, kw_only=True):
    """Another rank that has lanes."""

    rank: int
    role: RankRole = ""
    # Its tables are not in the capture: only what its summary holds.
    collectives_only: bool = False


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """A typical profiled step and the slowest one, event by event."""

    # How the steps begin and end.
    definition: StepDefinition
    # How many profiled steps they are chosen from.
    of_steps: int
    # Those beside the analysed one, of all that have a common clock with it.
    ranks: tuple[TimelineRank, ...] = ()
    labels: tuple[TimelineLabel, ...]
    steps: tuple[TimelineStep, ...]
