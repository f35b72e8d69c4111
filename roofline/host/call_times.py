"""How long calls take, by name: in all, and without what they call."""

from dataclasses import dataclass

import numpy as np

from gpuprof.collectors.call_tree.nesting import NONE, Integers, contiguous, parents
from gpuprof.collectors.call_tree.op_subtrees import Booleans
from gpuprof.collectors.native import compiled


@dataclass(frozen=True)
class Calls:
    """One entry a call; `names` are numbers from 0 on."""

    names: Integers
    threads: Integers
    starts: Integers
    ends: Integers

    @property
    def columns(self) -> tuple[Integers, Integers, Integers, Integers]:
        """The arrays, in this order."""
        return self.names, self.threads, self.starts, self.ends


@dataclass(frozen=True)
class CallTimes:
    """One entry a name."""

    calls: Integers
    # Where among the calls that are looked at its first one is, their number for a name without.
    first: Integers
    # Without calls within another of the same name.
    total_ns: Integers
    self_ns: Integers


def call_times(calls: Calls, order: Integers, count: int) -> CallTimes:
    """The times of `count` names, of the calls `order` alone, which `nesting_order` puts in order.

    Calls of a thread are a tree, so each moment of a thread is the self time of one call at most.
    """
    if compiled is None:
        return call_times_in_python(calls, order, count)
    names, threads, starts, ends = map(contiguous, calls.columns)
    found = compiled.call_times(names, threads, starts, ends, contiguous(order), count)
    return CallTimes(*np.frombuffer(found, np.int64).reshape(4, count))


def call_times_in_python(calls: Calls, order: Integers, count: int) -> CallTimes:
    """`call_times` without compiled code."""
    names, threads, starts, ends = (column.take(order) for column in calls.columns)
    above = parents(threads, starts, ends)
    inside = np.flatnonzero(above != NONE)
    lengths_ns = ends - starts
    self_ns = lengths_ns.copy()
    within_ns = np.minimum(ends[inside], ends[above[inside]]) - starts[inside]
    np.subtract.at(self_ns, above[inside], within_ns)
    outer_ns = np.where(_below_its_like(names, above), 0, lengths_ns)
    total_of_name, self_of_name = np.zeros((2, count), np.int64)
    np.add.at(total_of_name, names, outer_ns)
    np.add.at(self_of_name, names, self_ns)
    first = np.full(count, len(names))
    first[names[::-1]] = np.arange(len(names))[::-1]
    return CallTimes(np.bincount(names, minlength=count), first, total_of_name, self_of_name)


def _below_its_like(names: Integers, above: Integers) -> Booleans:
    """Which calls are made within another call of the same name, by the numbers of `names`."""
    found = np.zeros(len(above), np.bool_)
    pending = np.flatnonzero(above != NONE)
    ancestor = above[pending]
    while len(pending):
        alike = names[ancestor] == names[pending]
        found[pending[alike]] = True
        further = ~alike & (above[ancestor] != NONE)
        pending, ancestor = pending[further], above[ancestor[further]]
    return found
