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
    thread_codes,
)
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.host.call_times import Calls, call_times
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

    Operators and runtime calls of a thread are one tree. Calls without an end are left out.
    """
    windows = step_windows(capture)
    names, calls = _calls(capture)
    order = nesting_order(calls.starts, calls.ends)
    starts = calls.starts.take(order)
    counted = begun_within(windows, starts) & (calls.ends.take(order) != NEVER)
    order, starts = order[counted], starts[counted]
    if not len(order):
        return HostCalls()
    times = call_times(calls, order, len(names))
    # Of two names with as much the one that came first.
    found = np.lexsort((times.first, -times.self_ns))
    found = found[times.calls[found] > 0]
    return HostCalls(
        tuple(
            HostCall(
                name=names[number][1],
                kind=names[number][0],
                calls=int(times.calls[number]),
                total_ns=int(times.total_ns[number]),
                self_ns=int(times.self_ns[number]),
            )
            for number in found[:_MOST].tolist()
        ),
        int(times.self_ns[found[_MOST:]].sum()),
        _outside_ns(windows, starts, calls.ends.take(order)),
    )


def _calls(capture: Capture) -> tuple[list[tuple[CallKind, str]], Calls]:
    """Operators and then runtime calls, and what their numbers of names stand for."""
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
    return names, Calls(
        np.concatenate(numbers),
        np.concatenate(thread_codes(*frames)),
        np.concatenate([frame["start_ns"].to_numpy() for frame in frames]),
        np.concatenate([ends_of(frame) for frame in frames]),
    )


def _outside_ns(windows: Windows | None, starts: Integers, ends: Integers) -> int:
    if windows is None:
        windows = np.array([starts.min()]), np.array([ends.max()])
    return length_ns(windows) - union_within_ns(windows, starts, ends)
