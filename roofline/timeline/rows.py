"""Rows for events that overlap: those of one row follow each other."""

import heapq

import numpy as np

from gpuprof.collectors.native import compiled
from gpuprof.roofline.intervals import Nanoseconds


def free_rows(start_ns: Nanoseconds, end_ns: Nanoseconds) -> Nanoseconds:
    """For each event the lowest row that is free when it starts, from 0.

    Events are in order of start, and of equal starts the longest is first: then what nests has a
    row for each depth.
    """
    reached = np.maximum.accumulate(end_ns)
    if not (start_ns[1:] < reached[:-1]).any():
        return np.zeros(len(start_ns), np.int64)
    if compiled is not None:
        arrays = (np.ascontiguousarray(each, np.int64) for each in (start_ns, end_ns))
        return np.frombuffer(compiled.free_rows(*arrays), np.int64)
    return free_rows_in_python(start_ns, end_ns)


def free_rows_in_python(start_ns: Nanoseconds, end_ns: Nanoseconds) -> Nanoseconds:
    """`free_rows` without compiled code."""
    rows: list[int] = []
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    for start, end in zip(start_ns.tolist(), end_ns.tolist(), strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        row = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (end, row))
        rows.append(row)
    return np.array(rows, np.int64)
