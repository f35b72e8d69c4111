"""What the tree of operators and the ranges around it say about each piece of work."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from gpuprof.collectors import host_events
from gpuprof.collectors.call_tree.inheriting import inherit
from gpuprof.collectors.call_tree.nesting import NEVER, NONE, Integers, enclosing, thread_codes
from gpuprof.collectors.capture import Capture, once_a_capture
from gpuprof.roofline.intervals import merged
from gpuprof.roofline.work.attribution import launch_of_kernels, parent_rows, steps_at
from gpuprof.roofline.work.op_names import nodes_among_ops, ops_matching

# torch/optim/optimizer.py
_OPTIMIZER: Final = r"^Optimizer\.(?:step|zero_grad)#"
_STEP: Final = "Optimizer.step#"
# torch/utils/checkpoint.py; DeepSpeed, Megatron and fairscale call theirs the same.
_CHECKPOINT: Final = r"Checkpoint\w*Backward\d*$"
Booleans = npt.NDArray[np.bool_]

_UNKNOWN, _BACKWARD_CODE, _OPTIMIZER_CODE, _FORWARD_CODE, _GRADIENTS_CODE = 0, 1, 2, 3, 4
_PHASES: Final = ("", "backward", "optimizer", "forward", "gradients")
_REPEATED_CODE, _ONCE_CODE = 1, 2


@once_a_capture
def op_phases(capture: Capture) -> pl.DataFrame:
    """What each operator is part of: a row (rank, op_id, phase, recompute) for each of `ops`.

    backward: the nearest ancestor that says so (or the operator itself) is a node of autograd.
    optimizer: it is an optimizer's step, as an operator or as a range around it on its thread, and
    not a forward pass that the step evaluates (a closure).
    gradients: neither, between the last node of a backward pass and the optimizer's step.
    forward: none of these, in a step that holds a backward pass (work outside all steps counts as
    one step). Else "": a run without backward has no phases.

    recompute: activation checkpointing ran it a second time, inside the backward pass. Python
    stacks tell where they were recorded. The tree tells too: an operator carries a sequence number
    where it records a graph (pytorch aten/src/ATen/record_function.h), which a backward pass does
    only for what torch.utils.checkpoint repeats. A backward pass that itself records a graph
    (create_graph=True) hides what was repeated without reentrance: false there without stacks.
    """
    parts = [_rank_phases(capture.rank(info.rank)) for info in capture.processes]
    return pl.concat(parts)


@dataclass(frozen=True)
class RangeMembers:
    """The device work inside all ranges of one name and domain."""

    name: str
    domain: str
    # Rows of the table ranges: the passes through the range that hold any work.
    passes: Integers
    # The work inside any of them, each piece once, as positions in what `range_members` was given.
    kernels: Integers


def range_members(capture: Capture, kernel_rows: pl.Series) -> Iterator[RangeMembers]:
    """Which device work the user ranges of a one-rank capture hold, one name after the other.

    `kernel_rows` are the rows of the table kernels to look at. A range holds the work launched
    inside it on its own thread; one that was begun and ended by a handle that of all threads of its
    process. Rows of gpuprof's own are no ranges of the user. Backward operators are launched from
    threads of autograd, which know no ranges but those of libraries, while the calling thread
    waits: work launched while no range of its own thread is open counts to the ranges open at that
    time on the thread with the most ranges.
    Leaf operators of a CPU run are their own launch. Nested ranges each hold the work of the inner
    ones; work without a launch in the capture is in none.
    """
    ranges = capture.ranges
    launch = _launch_points(capture)[kernel_rows]
    threads, at_threads = thread_codes(ranges, launch)
    if not len(threads):
        return
    of_program = (ranges["domain"] != host_events.DOMAIN).fill_null(True).to_numpy()
    across = ranges["across_threads"].fill_null(False).to_numpy()
    on_one = of_program & ~across
    first, end = np.zeros_like(threads), np.zeros_like(threads)
    starts, ends = ranges["start_ns"].to_numpy(), ranges["end_ns"].fill_null(NEVER).to_numpy()
    times, launched = launch["launch_ns"].to_numpy(), launch["launched"].to_numpy()
    values, counts = np.unique(threads[on_one], return_counts=True)
    if len(values):
        own = np.zeros(len(times), np.bool_)
        for thread in values:
            here, points = on_one & (threads == thread), at_threads == thread
            opened, closed = merged(starts[here], ends[here])
            before = np.searchsorted(opened, times[points], side="right") - 1
            own[points] = (before >= 0) & (times[points] < closed[before])
        at_threads = np.where(own, at_threads, values[np.argmax(counts)])
    # All launches, one thread after the other, then one process after the other, each in the order
    # of time: a range holds a slice.
    ordered = [np.empty(0, np.int64)]
    offset = 0
    processes, at_processes = ranges["process"].to_numpy(), launch["process"].to_numpy()
    pools = [
        *((on_one & (threads == thread), at_threads == thread) for thread in values),
        *(
            (of_program & across & (processes == process), at_processes == process)
            for process in np.unique(processes[of_program & across])
        ),
    ]
    for held, launching in pools:
        points = np.flatnonzero(launching & launched)
        points = points[np.argsort(times[points], kind="stable")]
        here = np.flatnonzero(held)
        first[here] = offset + np.searchsorted(times[points], starts[here])
        end[here] = offset + np.searchsorted(times[points], ends[here])
        ordered.append(points)
        offset += len(points)
    launches = np.concatenate(ordered)
    groups = ranges.select("name", "domain").with_row_index("row").filter(pl.Series(end > first))
    for (name, domain), rows in groups.group_by("name", "domain", maintain_order=True):
        passes = rows["row"].to_numpy().astype(np.int64)
        inside = np.sort(launches[_union(first[passes], end[passes])])
        # One that is in a range of its thread and in one of its process is there twice.
        inside = inside[np.diff(inside, prepend=NONE) != 0]
        yield RangeMembers(str(name), str(domain), passes, inside)


def _union(first: Integers, end: Integers) -> Integers:
    """All positions in any of the slices first..end, in order, each once."""
    order = np.argsort(first, kind="stable")
    first, end = first[order], end[order]
    reached = np.maximum.accumulate(end)
    # Of each slice only what lies behind the ones before it.
    first[1:] = np.maximum(first[1:], reached[:-1])
    count = np.maximum(end - first, 0)
    positions: Integers = np.repeat(first - (np.cumsum(count) - count), count)
    return positions + np.arange(count.sum())


def _rank_phases(capture: Capture) -> pl.DataFrame:
    ops = capture.ops
    parents = parent_rows(capture)
    node = nodes_among_ops(capture)
    codes = np.zeros(ops.height, np.int8)
    # Only what stands in no other operator of the range: the rest inherits it, or is backward.
    in_range = _in_optimizer_range(capture)
    codes[in_range & ~((parents != NONE) & in_range[parents])] = _OPTIMIZER_CODE
    codes[ops_matching(capture, _OPTIMIZER)] = _OPTIMIZER_CODE
    codes[_evaluated_by_a_closure(capture, node, parents)] = _FORWARD_CODE
    codes[node] = _BACKWARD_CODE
    codes = inherit(codes, parents)
    codes[(codes == _UNKNOWN) & _between_backward_and_optimizer(capture, node)] = _GRADIENTS_CODE
    steps = steps_at(capture, ops["start_ns"]).fill_null(NONE).to_numpy()
    with_backward = np.isin(steps, np.unique(steps[codes == _BACKWARD_CODE]))
    codes[with_backward & (codes == _UNKNOWN)] = _FORWARD_CODE
    # Not texts: one a call would take as much memory as all that is known of its time.
    phases = pl.Series(_PHASES, dtype=pl.Enum(_PHASES)).gather(pl.Series(codes, dtype=pl.UInt32))
    return ops.select("rank", "op_id", phase=phases, recompute=pl.Series(_recomputed(capture)))


def _recomputed(capture: Capture) -> Booleans:
    """Which rows of `ops` of a one-rank capture repeat work of the forward pass."""
    ops = capture.ops
    told: Booleans = ops["recompute"].fill_null(False).to_numpy()
    node = nodes_among_ops(capture)
    if not node.any():
        return told
    parents = parent_rows(capture)
    # use_reentrant=True: one node repeats the forward and starts the backward nodes inside.
    checkpoint = ops_matching(capture, _CHECKPOINT)
    codes = np.zeros(ops.height, np.int8)
    codes[(parents != NONE) & checkpoint[parents]] = _REPEATED_CODE
    codes[_before_differentiating(ops, node, parents)] = _REPEATED_CODE
    codes[node] = _ONCE_CODE
    repeated: Booleans = told | (inherit(codes, parents) == _REPEATED_CODE)
    return repeated


def _before_differentiating(ops: pl.DataFrame, node: Booleans, parents: Integers) -> Integers:
    """Rows right below a backward node that repeat the forward (use_reentrant=False).

    The first node that asks for a dropped tensor runs the checkpointed forward again, in which the
    operator that it differentiates comes too. Its own operators follow and record nothing.
    """
    calls = ops.select("process", "thread", "name", "sequence", "start_ns", "end_ns")
    rows = np.flatnonzero(node)
    within = enclosing(calls[rows], calls, "start_ns")
    is_inside = ~node & (within != NONE)
    at = np.flatnonzero(is_inside)
    inside = calls[at].select(
        *("name", "sequence", "start_ns"),
        row=pl.Series(at),
        node=pl.Series(rows[within[at]]),
        direct=pl.Series((parents[at] >= 0) & node[parents[at]]),
    )
    recording = inside.filter(pl.col("sequence").is_not_null())
    if recording.is_empty():
        return recording["row"].to_numpy()
    forward = calls.select("name", "sequence").filter(
        pl.Series(~node & ~is_inside) & pl.col("sequence").is_not_null()
    )
    differentiated = recording.with_columns(
        sequence=ops["sequence"].gather(recording["node"])
    ).join(forward, on=("name", "sequence"), how="semi")
    last = (
        recording.join(differentiated, on="node", how="semi")
        .group_by("node")
        .agg(last_ns=pl.col("start_ns").max())
    )
    inside = inside.join(last, on="node")
    differentiating = inside.filter(
        pl.col("direct") & pl.col("sequence").is_null() & (pl.col("start_ns") > pl.col("last_ns"))
    )
    repeated = inside.join(differentiating, on="node", how="semi").filter(
        pl.col("start_ns") <= pl.col("last_ns")
    )
    return repeated["row"].to_numpy()


def _in_optimizer_range(capture: Capture) -> Booleans:
    ranges = capture.ranges.filter(pl.col("name").str.contains(_OPTIMIZER))
    ranges = ranges.sort("start_ns", "end_ns", descending=[False, True])
    inside: Booleans = enclosing(ranges, capture.ops, "start_ns") != NONE
    return inside


def _between_backward_and_optimizer(capture: Capture, node: Booleans) -> Booleans:
    """Which operators start after the last node before an optimizer's step, and before that step.

    Autograd may run on threads of its own, so times tell and not threads.
    """
    ops = capture.ops
    starts, ends = ops["start_ns"].to_numpy(), ops["end_ns"].fill_null(NEVER).to_numpy()
    calls = optimizer_steps(capture)
    if calls.is_empty() or not node.any():
        return np.zeros(ops.height, np.bool_)
    begun = np.sort(calls["start_ns"].to_numpy())
    order = np.argsort(starts[node], kind="stable")
    node_starts = starts[node][order]
    node_ends = np.maximum.accumulate(ends[node][order])
    # For each step of an optimizer when the backward passes before it are over.
    before = np.searchsorted(node_starts, begun) - 1
    over = np.where(before >= 0, node_ends[before], NEVER)
    following = np.searchsorted(begun, starts, side="right")
    known = following < len(begun)
    result: Booleans = known & (starts >= over[np.minimum(following, len(begun) - 1)])
    return result


def optimizer_steps(capture: Capture) -> pl.DataFrame:
    """The calls of `step` of optimizers, in the order in which they begin."""
    return _optimizer_calls(capture).filter(pl.col("name").str.starts_with(_STEP))


@once_a_capture
def _optimizer_calls(capture: Capture) -> pl.DataFrame:
    """The calls of optimizers, which traces hold as ranges or as operators."""
    columns = ["name", "process", "thread", "start_ns", "end_ns"]
    named = ops_matching(capture, _OPTIMIZER)
    return pl.concat(
        [
            capture.ranges.filter(pl.col("name").str.contains(_OPTIMIZER)).select(columns),
            capture.ops.select(columns).filter(pl.Series(named)),
        ]
    ).sort("start_ns", "end_ns", descending=[False, True])


def _evaluated_by_a_closure(capture: Capture, node: Booleans, parents: Integers) -> Booleans:
    """Which operators run the model inside an optimizer's step.

    torch's optimizers step without gradients and evaluate their closure with them, so what records
    a graph is the model's. Others step with gradients enabled, after the last backward pass.
    """
    ops = capture.ops
    calls = _optimizer_calls(capture)
    within = enclosing(calls, ops, "start_ns")
    # Autograd may run on threads of its own: a pass belongs to the step at whose time it begins.
    backward = np.sort(ops["start_ns"].to_numpy()[node])
    if calls.is_empty() or not len(backward):
        return np.zeros(ops.height, np.bool_)
    last = np.searchsorted(backward, calls["end_ns"].fill_null(NEVER).to_numpy()) - 1
    last_ns = np.where(last >= 0, backward[last], -NEVER)
    is_step = calls["name"].str.starts_with(_STEP).to_numpy()
    below_node = inherit(np.where(node, _BACKWARD_CODE, _UNKNOWN), parents) == _BACKWARD_CODE
    evaluated: Booleans = (
        (within != NONE)
        & is_step[within]
        & (ops["start_ns"].to_numpy() < last_ns[within])
        & ops["sequence"].is_not_null().to_numpy()
        & ~below_node
    )
    return evaluated


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
