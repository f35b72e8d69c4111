"""What explains most of a step's change, and where in the program that is."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from gpuprof.roofline.classes import COMMUNICATION, COPY, OTHER_RANK, ClassName
from gpuprof.roofline.comparison.kernel_changes import KernelChange, is_hideable
from gpuprof.roofline.comparison.kinds import KindChange
from gpuprof.roofline.comparison.lines import LineChange

# Of the step's change: a place that carries less is not where it comes from.
_LEAST_SHARE = 0.2
_OVER_LINKS = (COMMUNICATION, OTHER_RANK, COPY)


class MainCause(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the step that pulled it furthest the way it went. Times as in `KindChange`."""

    part: str
    kind: ClassName | None
    change_ns: int
    # The line whose work or waiting pulled furthest the same way, "" where lines are unknown or
    # none carries much of it; and by how much.
    line: str = ""
    line_change_ns: float | None = None
    # Of device work the same for the operator.
    operator: str = ""
    operator_change_ns: float | None = None


def main_cause(
    kinds: Sequence[KindChange], lines: Sequence[LineChange], kernels: Sequence[KernelChange]
) -> MainCause | None:
    """None where the step did not change, or nothing is known of its parts."""
    change_ns = sum(kind.change_ns for kind in kinds)
    direction = 1 if change_ns > 0 else -1
    pulled = max(kinds, key=lambda kind: direction * kind.change_ns, default=None)
    if pulled is None or not change_ns:
        return None
    least_ns = _LEAST_SHARE * abs(change_ns)

    def furthest(changes: dict[str, float]) -> tuple[str, float | None]:
        name = max(changes, key=lambda each: direction * changes[each], default="")
        if not name or direction * changes[name] < least_ns:
            return "", None
        return name, changes[name]

    if pulled.idle:
        by_line = {
            each.head or each.base: each.waiting_change_ns or 0.0
            for each in lines
            if pulled.kind in (None, each.waiting_kind)
        }
    else:
        by_line = {each.head or each.base: each.change_ns for each in lines}
    by_operator: defaultdict[str, float] = defaultdict(float)
    for kernel in () if pulled.idle else kernels:
        if is_hideable(kernel) == (pulled.kind in _OVER_LINKS):
            by_operator[kernel.side.op] += kernel.change_ns
    line, line_change_ns = furthest(by_line)
    operator, operator_change_ns = furthest(by_operator)
    return MainCause(
        part=pulled.part,
        kind=pulled.kind,
        change_ns=pulled.change_ns,
        line=line,
        line_change_ns=line_change_ns,
        operator=operator,
        operator_change_ns=operator_change_ns,
    )
