"""What a time line's lanes and pieces are called, for people."""

from typing import Final

from gpuprof.reports import formatting
from gpuprof.roofline.classes import QUEUED
from gpuprof.roofline.timeline_figures import (
    LaneKind,
    PieceKind,
    Timeline,
    TimelineActivity,
    TimelineLabel,
    TimelineLane,
    TimelineStep,
)

_LANES: Final[dict[LaneKind, str]] = {
    "stream": "stream",
    "idle": "no device work",
    "range": "ranges",
    "host": "what the host does",
    "module": "modules",
    "operator": "operators",
    "call": "calls",
}
_OTHERS: Final[dict[PieceKind, str]] = {
    "kernel": "kernels",
    "memcpy": "copies",
    "memset": "fills",
    "collective": "collectives",
    "op": "leaf operators",
    "idle": "waits",
    "range": "ranges",
    "host": "events of the host",
    "module": "modules",
    "operator": "operators",
    "call": "calls",
}
# Before the name of a node of autograd's graph: torch/csrc/autograd/engine.cpp.
_BACKWARD: Final = "autograd::engine::evaluate_function: "


def lane_name(lane: TimelineLane, *, on_cpu: bool) -> str:
    """ "stream 7", "calls"; what overlaps in a stream has a number behind it."""
    name = _LANES[lane.kind]
    if lane.kind == "stream":
        name = "leaf operators" if on_cpu else f"stream {_number(lane.stream)}"
        return f"{name}, overlapping {lane.row}" if lane.row else name
    return name if not lane.row else ""


def group_name(lane: TimelineLane, timeline: Timeline, own_rank: int, *, on_cpu: bool) -> str:
    """The thread or the device that a lane is of: "thread 424", "rank 3 (straggler), GPU 0"."""
    place = _place(lane, on_cpu=on_cpu)
    if not timeline.ranks:
        return place
    if lane.rank is None:
        return f"rank {own_rank}, {place}"
    role = next(each.role for each in timeline.ranks if each.rank == lane.rank)
    rank = f"rank {lane.rank} ({role})" if role else f"rank {lane.rank}"
    return f"{rank}, {place}"


def counted_name(activity: TimelineActivity) -> str:
    """The device whose counters an activity is of: "GPU 0, counted"."""
    return f"GPU {activity.device}, counted"


def _place(lane: TimelineLane, *, on_cpu: bool) -> str:
    if lane.kind == "idle":
        return "any device"
    if lane.kind != "stream":
        return f"thread {_number(lane.thread)}"
    if on_cpu:
        return f"CPU, thread {_number(lane.stream)}"
    return "GPU" if lane.device is None else f"GPU {lane.device}"


def piece_name(label: TimelineLabel) -> str:
    """The name of a piece as people read it; "other kernels" where it has none of its own."""
    if not label.name:
        return f"other {_OTHERS[label.kind]}"
    name = label.name.removeprefix(_BACKWARD)
    if label.kind in ("kernel", "collective"):
        name = formatting.kernel_name(name)
    return formatting.printable(name)


def detail_text(label: TimelineLabel) -> str:
    """What else is known of a piece; of work that is queued its kernel."""
    detail = label.detail
    return formatting.printable(formatting.kernel_name(detail) if label.waits == QUEUED else detail)


def number_of(label: TimelineLabel, count: int) -> str:
    """ "312 kernels": what a piece that stands for several is."""
    return f"{formatting.count(count)} {_OTHERS[label.kind]}"


def step_name(step: TimelineStep) -> str:
    """ "step 12", "the trace" where nothing marks steps."""
    return "the trace" if step.index is None else f"step {step.index}"


def _number(value: int | None) -> str:
    return formatting.UNKNOWN if value is None else str(value)
