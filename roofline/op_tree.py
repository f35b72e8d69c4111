"""What the tree of operators and the ranges around it say about each piece of work."""

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.nesting import NONE, Integers, enclosing, thread_codes
from gpuprof.roofline.attribution import launch_of_kernels, rows_of, steps_at

# pytorch torch/csrc/autograd/engine.cpp names the node it evaluates; the node's own record_function
# is the name in tools/autograd/derivatives.yaml, or a Python Function's name with "Backward".
_BACKWARD: Final = r"^autograd::engine::evaluate_function|Backward\d*$"
# torch/optim/optimizer.py
_OPTIMIZER: Final = r"^Optimizer\.(?:step|zero_grad)#"
Booleans = npt.NDArray[np.bool_]

_UNKNOWN, _BACKWARD_CODE, _OPTIMIZER_CODE, _FORWARD_CODE = 0, 1, 2, 3
_PHASES: Final = ("", "backward", "optimizer", "forward")


def op_phases(capture: Capture) -> pl.DataFrame:
    """The phase of each operator: a row (rank, op_id, phase) for each row of `ops`, in order.

    backward: the nearest ancestor that says so (or the operator itself) is a node of autograd.
    optimizer: it is an optimizer's step, as an operator or as a range around it on its thread.
    forward: neither, in a step that holds a backward pass (work outside all steps counts as one
    step). Else "": a run without backward has no phases.
    """
    parts = [_rank_phases(capture.rank(info.rank)) for info in capture.processes]
    return pl.concat(parts)


def range_membership(capture: Capture) -> pl.DataFrame:
    """Which device work each user range holds: a row (range_row, kernel_row) for each pair.

    Both are positions in the capture's tables. A range holds the work launched inside it on its own
    thread. Backward operators are launched from threads of autograd, which know no ranges, while
    the calling thread waits: work launched from a thread without ranges counts to the ranges that
    are open at that time on the thread with the most ranges. Leaf operators of a CPU run are their
    own launch. Nested ranges each hold the work of the inner ones; work without a launch in the
    capture is in none.
    """
    parts = [_rank_membership(capture, info.rank) for info in capture.processes]
    return pl.concat(parts)


def _rank_phases(capture: Capture) -> pl.DataFrame:
    ops = capture.ops
    codes = np.zeros(ops.height, np.int8)
    codes[_in_optimizer_range(capture)] = _OPTIMIZER_CODE
    codes[_named(ops["name"], _OPTIMIZER)] = _OPTIMIZER_CODE
    codes[_named(ops["name"], _BACKWARD)] = _BACKWARD_CODE
    codes = _inherit(codes, rows_of(ops, ops["parent_id"]))
    steps = steps_at(capture, ops["start_ns"]).fill_null(NONE).to_numpy()
    with_backward = np.isin(steps, np.unique(steps[codes == _BACKWARD_CODE]))
    codes[with_backward & (codes == _UNKNOWN)] = _FORWARD_CODE
    phases = pl.Series(np.array(_PHASES)[codes], dtype=pl.String)
    return ops.select("rank", "op_id", phase=phases)


def _named(names: pl.Series, pattern: str) -> Booleans:
    """Which rows have a name that matches; each distinct name is looked at once."""
    distinct = names.unique()
    matching = distinct.filter(distinct.str.contains(pattern))
    result: Booleans = names.is_in(matching.implode()).to_numpy()
    return result


def _in_optimizer_range(capture: Capture) -> Booleans:
    ranges = capture.ranges.filter(pl.col("name").str.contains(_OPTIMIZER))
    ranges = ranges.sort("start_ns", "end_ns", descending=[False, True])
    inside: Booleans = enclosing(ranges, capture.ops, "start_ns") != NONE
    return inside


def _inherit(codes: npt.NDArray[np.int8], parent: Integers) -> npt.NDArray[np.int8]:
    """Give each unknown row the code of its nearest ancestor that has one.

    Each pass looks twice as far up, so deep trees take few passes.
    """
    above = parent
    while (above != NONE).any():
        found = np.where(above != NONE, codes[above], _UNKNOWN)
        codes = np.where(codes == _UNKNOWN, found, codes).astype(np.int8)
        # Row NONE (the last) is read where there is nothing above, and put right.
        above = np.where(above != NONE, above[above], NONE)
    return codes


def _rank_membership(capture: Capture, rank: int) -> pl.DataFrame:
    range_rows = np.flatnonzero(capture.ranges["rank"].to_numpy() == rank)
    kernel_rows = np.flatnonzero(capture.kernels["rank"].to_numpy() == rank)
    part = capture.rank(rank)
    launch = _launch_points(part)
    threads, at_threads = thread_codes(part.ranges, launch)
    if len(threads):
        values, counts = np.unique(threads, return_counts=True)
        at_threads = np.where(np.isin(at_threads, values), at_threads, values[np.argmax(counts)])
    times = launch["launch_ns"].to_numpy()
    pairs = [np.empty((2, 0), np.int64)]
    for thread in np.unique(threads):
        ranges = np.flatnonzero(threads == thread)
        points = np.flatnonzero((at_threads == thread) & launch["launched"].to_numpy())
        points = points[np.argsort(times[points], kind="stable")]
        first = np.searchsorted(times[points], part.ranges["start_ns"].to_numpy()[ranges])
        last = np.searchsorted(times[points], part.ranges["end_ns"].to_numpy()[ranges])
        count = last - first
        # The positions first..last of each range, one after the other.
        inner = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        kernels = points[np.repeat(first, count) + inner]
        pairs.append(np.stack([np.repeat(ranges, count), kernels]))
    members, kernels = np.concatenate(pairs, axis=1)
    return pl.DataFrame({"range_row": range_rows[members], "kernel_row": kernel_rows[kernels]})


def _launch_points(capture: Capture) -> pl.DataFrame:
    """Process, thread and time of the launch of each row of `kernels`, and whether it has one."""
    is_leaf = capture.kernels["kind"] == "op"
    return launch_of_kernels(capture).select(
        "process",
        # The stream of a leaf operator is the thread it ran on.
        thread=pl.when(is_leaf).then(capture.kernels["stream"]).otherwise("thread"),
        launch_ns=pl.when(is_leaf)
        .then(capture.kernels["start_ns"])
        .otherwise("launch_ns")
        .fill_null(0),
        launched=pl.col("launch_ns").is_not_null() | is_leaf,
    )
