"""The change of a step by kind of time: parts that add up to it to the nanosecond."""

from collections.abc import Iterable

import msgspec

from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.classes import COMMUNICATION, COPY, OTHER_RANK, ClassName, bottleneck_class
from gpuprof.roofline.classes import classes as all_classes
from gpuprof.roofline.step_figures import StepSplit

# Of a step of which no more is known than whether anything computes.
COMPUTING = "computing"


class KindChange(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a step's time before and after, in nanoseconds."""

    # The label of the part, as a step's split has it; `COMPUTING` where the two sides are known
    # only as far as that.
    part: str
    # None for what is no class: computing, or waiting of any cause.
    kind: ClassName | None
    # Whether no device work runs meanwhile.
    idle: bool
    base_ns: int
    head_ns: int

    @property
    def change_ns(self) -> int:
        """Head minus base."""
        return self.head_ns - self.base_ns


def kind_changes(
    base: Analysis, head: Analysis, *, base_ns: int, head_ns: int, idle_name: str
) -> tuple[KindChange, ...]:
    """The parts of two steps of these lengths, in the order of a step's split.

    By class where the splits of both sides are of these steps. Else, as where one side has timed
    steps and the other profiled ones alone, by what is known of both: computing, exposed
    communication, exposed copies and waiting. The changes add up to `head_ns - base_ns`.
    """
    before, after = base.split, head.split
    if (
        before is not None
        and after is not None
        and (before.step_ns, after.step_ns) == (base_ns, head_ns)
    ):
        return _without_empty(
            KindChange(
                part=row.part,
                kind=row.name,
                idle=row.idle,
                base_ns=before.nanoseconds(row.name),
                head_ns=after.nanoseconds(row.name),
            )
            for row in all_classes().values()
        )
    ones, others = _coarse(base, base_ns), _coarse(head, head_ns)
    labels: tuple[tuple[str, ClassName | None], ...] = (
        (COMPUTING, None),
        (bottleneck_class(COMMUNICATION).part, COMMUNICATION),
        (bottleneck_class(COPY).part, COPY),
        (idle_name, None),
    )
    return _without_empty(
        KindChange(part=part, kind=kind, idle=part == idle_name, base_ns=one, head_ns=other)
        for (part, kind), one, other in zip(labels, ones, others, strict=True)
    )


def _coarse(analysis: Analysis, step_ns: int) -> tuple[int, int, int, int]:
    """Computing, exposed communication, exposed copies and the rest of a step of `step_ns`."""
    split, use = analysis.split, analysis.exposed
    if split is not None and (split.step_ns == step_ns or use is None):
        communication_ns, copies_ns = _communication_ns(split), split.nanoseconds(COPY)
        busy_ns = split.busy_ns
    elif use is not None:
        communication_ns, copies_ns = use.communication_ns, use.copies_ns
        busy_ns = use.busy_ns
    else:
        return (0, 0, 0, step_ns)
    computing_ns = busy_ns - communication_ns - copies_ns
    return (computing_ns, communication_ns, copies_ns, step_ns - busy_ns)


def _communication_ns(split: StepSplit) -> int:
    return split.nanoseconds(COMMUNICATION) + split.nanoseconds(OTHER_RANK)


def _without_empty(found: Iterable[KindChange]) -> tuple[KindChange, ...]:
    return tuple(one for one in found if one.base_ns or one.head_ns)
