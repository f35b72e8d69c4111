"""Which kernel of the head is which of the base.

In order, each on what the ones before left: the same name, operator, phase and shapes; the same
name with less of that, and calls that only one side replays in a CUDA graph, where no operator is
known, with those that it launches one by one; the same normalised name; the same operator, phase
and shapes; kernels that a compiler fused, by the operators in its kernels' names; and last, as a
guess, the least cost by time among kernels that are called equally often.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.comparison.fusion import fused_groups
from gpuprof.roofline.comparison.kernel_changes import KernelChange, KernelSide, Match
from gpuprof.roofline.comparison.names import normalised

# A guess by time takes calls of up to so many times the length for the same work.
_NEAR = 2.0
# Larger than any sum of nanoseconds, so that the assignment avoids what is not allowed.
_FORBIDDEN = 1e18
# Kernels of one side that are assigned at once: a matrix has so many rows.
_MOST_ASSIGNED = 1000

Key = Callable[[KernelSide], Hashable | None]
Times = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Stage:
    """Kernels with one key are the same work. A key of None is none."""

    match: Match
    key: Key


_BY_NAME = (
    _Stage("name", lambda k: (k.name, k.op, k.phase, k.shapes)),
    _Stage("name", lambda k: (k.name, k.op, k.phase)),
    _Stage("name", lambda k: k.name),
)
_BY_LESS = (
    _Stage("normalised name", lambda k: (normalised(k.name), k.op, k.phase, k.shapes)),
    _Stage("normalised name", lambda k: (normalised(k.name), k.op, k.phase)),
    _Stage("normalised name", lambda k: normalised(k.name)),
    _Stage("operator", lambda k: (k.op, k.phase, k.shapes, k.kind) if k.op and k.shapes else None),
    _Stage("operator", lambda k: (k.op, k.phase, k.kind) if k.op else None),
)


def sides(points: Iterable[RooflinePoint], steps: int) -> list[KernelSide]:
    """The kernels of one analysis as means of its `steps` profiled steps (at least 1)."""
    return [
        KernelSide(
            name=point.name,
            op=point.op,
            shapes=point.op_detail,
            phase=point.phase,
            kind=point.kind,
            calls=point.calls / steps,
            device_ns=point.device_ns / steps,
            bottleneck=point.bottleneck.kind,
            roof=point.roof,
            roof_fraction=point.roof_fraction,
            flops=_per_step(point.total_flops, steps),
            bytes=_per_step(point.total_bytes, steps),
        )
        for point in points
    ]


def _per_step(total: int | None, steps: int) -> float | None:
    return None if total is None else total / steps


def match_kernels(
    base: Sequence[KernelSide], head: Sequence[KernelSide]
) -> tuple[KernelChange, ...]:
    """Every kernel of both sides in one change; the largest changes first."""
    left, right = list(base), list(head)
    changes: list[KernelChange] = []
    for stage in _BY_NAME:
        found, left, right = _match_by_key(stage, left, right)
        changes += found
    changes, left, right = _with_replays(changes, left, right)
    for stage in _BY_LESS:
        found, left, right = _match_by_key(stage, left, right)
        changes += found
    fused = fused_groups(left, right)
    changes += [_change("fused", _together(ones), _together(others)) for ones, others in fused]
    taken = {id(side) for ones, others in fused for side in (*ones, *others)}
    left = [one for one in left if id(one) not in taken]
    right = [other for other in right if id(other) not in taken]
    pairs = _guess(left, right)
    changes += [_change("time", one, other) for one, other in pairs]
    taken = {id(side) for pair in pairs for side in pair}
    changes += [_change("removed", one, None) for one in left if id(one) not in taken]
    changes += [_change("new", None, other) for other in right if id(other) not in taken]
    return tuple(sorted(changes, key=lambda c: (-abs(c.change_ns), c.name, c.side.shapes)))


def _match_by_key(
    stage: _Stage, left: list[KernelSide], right: list[KernelSide]
) -> tuple[list[KernelChange], list[KernelSide], list[KernelSide]]:
    """The changes that the stage finds, and what it leaves of both sides."""
    before, after = _grouped(left, stage.key), _grouped(right, stage.key)
    changes: list[KernelChange] = []
    matched: set[int] = set()
    for key in [key for key in before if key in after]:
        ones, others = before[key], after[key]
        if len(ones) == len(others):
            changes += [_change(stage.match, *pair) for pair in _in_order(ones, others)]
        else:
            # Which of several is which cannot be told: they are taken together.
            changes.append(_change(stage.match, _together(ones), _together(others)))
        matched |= {id(side) for side in (*ones, *others)}
    return (
        changes,
        [side for side in left if id(side) not in matched],
        [side for side in right if id(side) not in matched],
    )


def _with_replays(
    changes: Iterable[KernelChange], left: list[KernelSide], right: list[KernelSide]
) -> tuple[list[KernelChange], list[KernelSide], list[KernelSide]]:
    """`changes` of replayed kernels with the launches that took their place, and what is left.

    Where one side replays fewer calls of a kernel in CUDA graphs and launches others of that name,
    these are the same calls: neither did some vanish, nor are the others new.
    """
    regrouped = []
    for change in changes:
        base, head = change.base, change.head
        if base is None or head is None or base.op or head.op:
            regrouped.append(change)
            continue
        if head.calls < base.calls:
            launched = [one for one in right if one.name == head.name and one.op]
            right = [one for one in right if one not in launched]
            head = _together([head, *launched])
        elif base.calls < head.calls:
            launched = [one for one in left if one.name == base.name and one.op]
            left = [one for one in left if one not in launched]
            base = _together([base, *launched])
        regrouped.append(_change(change.match, base, head))
    return regrouped, left, right


def _grouped(kernels: Iterable[KernelSide], key: Key) -> dict[Hashable, list[KernelSide]]:
    groups: dict[Hashable, list[KernelSide]] = defaultdict(list)
    for kernel in kernels:
        if (value := key(kernel)) is not None:
            groups[value].append(kernel)
    return groups


def _in_order(
    ones: Sequence[KernelSide], others: Sequence[KernelSide]
) -> list[tuple[KernelSide, KernelSide]]:
    """As many of each, paired by their order in time: no pairs differ by less in all."""
    return list(zip(_by_time(ones), _by_time(others), strict=True))


def _by_time(kernels: Iterable[KernelSide]) -> list[KernelSide]:
    return sorted(kernels, key=lambda kernel: -kernel.device_ns)


def _least_difference(
    ones: Sequence[KernelSide], others: Sequence[KernelSide]
) -> list[tuple[KernelSide, KernelSide]]:
    """The pairs of about the same time that differ by least in all.

    Of many, which would need much memory, those that come next to each other in order of time.
    """
    if max(len(ones), len(others)) > _MOST_ASSIGNED:
        return _neighbours(_by_time(ones), _by_time(others))
    before, after = (np.array([k.device_ns for k in kernels]) for kernels in (ones, others))
    costs = np.abs(before[:, None] - after[None, :])
    costs[~_near(before[:, None], after[None, :])] = _FORBIDDEN
    rows, columns = linear_sum_assignment(costs)
    return [
        (ones[row], others[column])
        for row, column in zip(rows, columns, strict=True)
        if costs[row, column] < _FORBIDDEN
    ]


def _neighbours(
    ones: Sequence[KernelSide], others: Sequence[KernelSide]
) -> list[tuple[KernelSide, KernelSide]]:
    """Both from the longest on: what is too long for the longest that is left has no partner."""
    pairs = []
    left = right = 0
    while left < len(ones) and right < len(others):
        one, other = ones[left], others[right]
        if max(one.device_ns, other.device_ns) <= _NEAR * min(one.device_ns, other.device_ns):
            pairs.append((one, other))
            left, right = left + 1, right + 1
        elif one.device_ns > other.device_ns:
            left += 1
        else:
            right += 1
    return pairs


def _guess(
    left: Sequence[KernelSide], right: Sequence[KernelSide]
) -> list[tuple[KernelSide, KernelSide]]:
    """Pairs of as many calls and about the same time, where at most one side's operator is known.

    Operators that are known and differ do other work.
    """
    before, after = (_grouped(kernels, lambda k: (k.kind, k.calls)) for kernels in (left, right))
    pairs: list[tuple[KernelSide, KernelSide]] = []
    for key in [key for key in before if key in after]:
        for ones, others in (
            ([k for k in before[key] if k.op], [k for k in after[key] if not k.op]),
            ([k for k in before[key] if not k.op], after[key]),
        ):
            taken = {id(other) for _, other in pairs}
            free = [other for other in others if id(other) not in taken]
            if ones and free:
                pairs += _least_difference(ones, free)
    return pairs


def _near(before: Times, after: Times) -> npt.NDArray[np.bool_]:
    """Where times of as many calls are within a factor of each other."""
    return np.maximum(before, after) <= _NEAR * np.minimum(before, after)


def _together(kernels: Sequence[KernelSide]) -> KernelSide:
    """Several kernels as one: what they have in common, and their times added up."""
    if len(kernels) == 1:
        return kernels[0]
    largest = max(kernels, key=lambda kernel: kernel.device_ns)
    device_ns = sum(kernel.device_ns for kernel in kernels)
    known = [k for k in kernels if k.roof_fraction is not None and k.roof == largest.roof]
    by_time = sorted(kernels, key=lambda kernel: -kernel.device_ns)
    return KernelSide(
        name=largest.name,
        others=tuple(dict.fromkeys(k.name for k in by_time if k.name != largest.name)),
        op=", ".join(dict.fromkeys(kernel.op for kernel in by_time if kernel.op)),
        shapes=_common(kernel.shapes for kernel in kernels),
        phase=_common(kernel.phase for kernel in kernels),
        kind=largest.kind,
        calls=sum(kernel.calls for kernel in kernels),
        device_ns=device_ns,
        bottleneck=largest.bottleneck,
        roof=largest.roof,
        # Roof times of one ceiling add up; those of several do not.
        roof_fraction=(
            sum((k.roof_fraction or 0.0) * k.device_ns for k in known) / device_ns
            if len(known) == len(kernels) and device_ns
            else None
        ),
        flops=_sum(kernel.flops for kernel in kernels),
        bytes=_sum(kernel.bytes for kernel in kernels),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum; None where any is unknown."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _common(values: Iterable[str]) -> str:
    different = set(values)
    return different.pop() if len(different) == 1 else ""


def _change(match: Match, base: KernelSide | None, head: KernelSide | None) -> KernelChange:
    """The change of one pair, split at the mean of both sides so that nothing is left over."""
    before_ns = 0.0 if base is None else base.device_ns
    after_ns = 0.0 if head is None else head.device_ns
    if base is None or head is None:
        by_count, by_mean = after_ns - before_ns, 0.0
    else:
        by_count = (head.calls - base.calls) * (base.mean_ns + head.mean_ns) / 2
        by_mean = (head.mean_ns - base.mean_ns) * (base.calls + head.calls) / 2
    return KernelChange(
        match=match,
        base=base,
        head=head,
        change_ns=after_ns - before_ns,
        by_count_ns=by_count,
        by_mean_ns=by_mean,
    )
