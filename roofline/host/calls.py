"""Self time of operators and of runtime calls: what the host itself spent where."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from gpuprof.collectors.call_tree.nesting import (
    NEVER,
    NONE,
    Integers,
    ends_of,
    nesting_order,
    parents,
    thread_codes,
)
from gpuprof.collectors.call_tree.op_subtrees import Booleans
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.host.windows import (
    Windows,
    begun_within,
    length_ns,
    step_windows,
    union_within_ns,
)
from gpuprof.roofline.host_figures import CallKind, HostCall
from gpuprof.roofline.work.names import NumberedNames, launch_names, op_names

# Names in the table; a trace of a compiler's own work has thousands of others.
_MOST: Final = 200


@dataclass(frozen=True)
class HostCalls:
    """The calls of the profiled steps, and the time outside of all of them."""

    calls: tuple[HostCall, ...] = ()
    other_self_ns: int = 0
    outside_ns: int | None = None


def host_calls(capture: Capture) -> HostCalls:
    """Calls of a one-rank capture that began in its profiled steps, by name.

    Operators and runtime calls of a thread are one tree, so each moment of a thread is the self
    time of one call at most. Calls without an end are left out.
    """
    windows = step_windows(capture)
    calls = _calls(capture)
    order = nesting_order(calls.starts, calls.ends)
    ended = calls.ends[order] != NEVER
    calls = calls.at(order[ended & begun_within(windows, calls.starts[order])])
    names, numbers, starts, ends = calls.names, calls.numbers, calls.starts, calls.ends
    if not len(numbers):
        return HostCalls()
    above = parents(calls.threads, starts, ends)
    inside = np.flatnonzero(above != NONE)
    lengths_ns = ends - starts
    self_ns = lengths_ns.copy()
    within_ns = np.minimum(ends[inside], ends[above[inside]]) - starts[inside]
    np.subtract.at(self_ns, above[inside], within_ns)
    outer_ns = np.where(_below_its_like(numbers, above), 0, lengths_ns)
    counts = np.bincount(numbers, minlength=len(names))
    total_of_name, self_of_name = np.zeros((2, len(names)), np.int64)
    np.add.at(total_of_name, numbers, outer_ns)
    np.add.at(self_of_name, numbers, self_ns)
    # Of two names with as much the one that came first.
    first = np.full(len(names), len(numbers))
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]
    found = np.lexsort((first, -self_of_name))
    found = found[counts[found] > 0]
    return HostCalls(
        tuple(
            HostCall(
                name=names[number][1],
                kind=names[number][0],
                calls=int(counts[number]),
                total_ns=int(total_of_name[number]),
                self_ns=int(self_of_name[number]),
            )
            for number in found[:_MOST].tolist()
        ),
        int(self_of_name[found[_MOST:]].sum()),
        _outside_ns(windows, starts, ends),
    )


@dataclass(frozen=True)
class _Calls:
    """Operators and then runtime calls: one entry a call, but for the kinds and names of them."""

    names: list[tuple[CallKind, str]]
    # Of `names`.
    numbers: Integers
    threads: Integers
    starts: Integers
    ends: Integers

    def at(self, rows: Integers) -> "_Calls":
        """Those calls alone, in this order."""
        arrays = self.numbers, self.threads, self.starts, self.ends
        return _Calls(self.names, *(each.take(rows) for each in arrays))


def _calls(capture: Capture) -> _Calls:
    names: list[tuple[CallKind, str]] = []
    numbers = []
    kinds: tuple[tuple[CallKind, NumberedNames], ...] = (
        ("operator", op_names(capture)),
        ("runtime", launch_names(capture)),
    )
    for kind, own in kinds:
        # After the others "" for those without a name.
        number = np.where(own.numbers == NONE, len(own.texts), own.numbers)
        numbers.append(number + len(names))
        names += [(kind, name) for name in (*own.texts, "")]
    frames = capture.ops, capture.launches
    return _Calls(
        names,
        np.concatenate(numbers),
        np.concatenate(thread_codes(*frames)),
        np.concatenate([frame["start_ns"].to_numpy() for frame in frames]),
        np.concatenate([ends_of(frame) for frame in frames]),
    )


def _below_its_like(names: Integers, above: Integers) -> Booleans:
    """Which calls are made within another call of the same name, by the numbers of `names`."""
    found = np.zeros(len(above), np.bool_)
    pending = np.flatnonzero(above != NONE)
    called = names[pending]
    pending = pending[_in_a_circle(names[above[pending]], called)[called]]
    ancestor = above[pending]
    while len(pending):
        alike = names[ancestor] == names[pending]
        found[pending[alike]] = True
        further = ~alike & (above[ancestor] != NONE)
        pending, ancestor = pending[further], above[ancestor[further]]
    return found


def _in_a_circle(callers: Integers, called: Integers) -> Booleans:
    """Which names can be of a call within its like, by the names of calls and of their callers.

    Only one that calls itself, at once or through others. Names without a caller, and those that
    call none, are taken away until all that are left have both.
    """
    count = max(callers.max(initial=0), called.max(initial=0)) + 1
    if count * count < len(called):
        # Each pair once.
        seen = np.zeros(count * count, np.bool_)
        seen[callers * count + called] = True
        callers, called = np.divmod(np.flatnonzero(seen), count)
    while True:
        calls, is_called = np.zeros((2, count), np.bool_)
        calls[callers], is_called[called] = True, True
        left: Booleans = calls & is_called
        kept = left[callers] & left[called]
        if kept.all():
            return left
        callers, called = callers[kept], called[kept]


def _outside_ns(windows: Windows | None, starts: Integers, ends: Integers) -> int:
    if windows is None:
        windows = np.array([starts.min()]), np.array([ends.max()])
    return length_ns(windows) - union_within_ns(windows, starts, ends)
