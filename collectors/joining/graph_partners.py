"""Traces given beside one that replays CUDA graphs, for the operators that its graphs run.

A replay's kernels have no operators: those ran when the graph was captured. A trace of the capture
has them, and so has a trace of the same program run eagerly. Such a trace becomes rows of
`graph_nodes` in the capture of the replays, with the operators that these rows name; its own work
is not counted. vLLM and SGLang write a trace for each graph that they capture.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import polars as pl

from gpuprof.collectors import schema
from gpuprof.collectors.call_tree.nesting import NONE, enclosing
from gpuprof.collectors.capture import Capture

GRAPH_LAUNCH: Final = r"^(?:cuda|cu|hip)GraphLaunch"
_SIZES: Final = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
# Of the work of replays, the part that an eager trace must hold to be taken for the same program's:
# where sizes are known, half, since elementwise kernels may be fused or copies left out. By names
# alone other work looks alike: an eager prefill has 60 % of the kernel names of a decode.
ENOUGH_BY_SIZE: Final = 0.5
ENOUGH_BY_NAME: Final = 0.95
# Ranges that tell in which phase of a training step an operator ran.
_OPTIMIZER: Final = "Optimizer."
# Between a partner's last call and the first of the replays, where their times would mix.
_APART_NS: Final = 1_000_000_000

Token = tuple[Any, ...]


def with_partners(captures: Sequence[Capture]) -> list[Capture]:
    """`captures`, without those that only tell what graphs of another one run, which that one has.

    A partner is no other rank for certain, replays no graph itself, and holds captures of graphs or
    eager kernels like those of the replays. Several captures of one rank alone are joined.
    """
    targets = {place: each for place, each in enumerate(captures) if _replays(each)}
    kept: dict[int, Capture] = {}
    for place, capture in enumerate(captures):
        if place in targets:
            continue
        helped = [target for target in targets if _is_partner(capture, captures[target])]
        for target in helped:
            targets[target] = _with_partner(targets[target], capture)
        if helped:
            continue
        same = [
            other
            for other in kept
            if _only_captures(capture)
            and _only_captures(kept[other])
            and _same_rank(capture, kept[other])
        ]
        if same:
            kept[same[0]] = _with_partner(kept[same[0]], capture)
        else:
            kept[place] = capture
    return [each for _, each in sorted({**kept, **targets}.items())]


def _with_partner(capture: Capture, partner: Capture) -> Capture:
    """`with_nodes_of` another file, which is named."""
    title = partner.manifest.title
    nodes = _nodes(partner).with_columns(pl.col("file").fill_null(title))
    said = f"{title} tells which operators the replayed graphs run; its own work is not counted"
    (process,) = capture.processes
    warnings = tuple(dict.fromkeys((*process.warnings, *partner.processes[0].warnings, said)))
    warned = capture.with_processes((msgspec.structs.replace(process, warnings=warnings),))
    return with_nodes_of(warned, replace(partner, graph_nodes=nodes))


def with_nodes_of(capture: Capture, partner: Capture) -> Capture:
    """`capture`, of one rank, with the graph nodes of `partner` and their operators."""
    nodes = partner.graph_nodes
    if nodes.is_empty():
        return capture
    (process,) = capture.processes
    rank = pl.lit(process.rank, pl.Int32).alias("rank")
    own, theirs = capture.ops, _with_ancestors(partner.ops, nodes["op_id"])
    first_id = int(own["op_id"].to_numpy().max(initial=-1)) + 1
    shift_ns = _shift_ns(capture, theirs)
    ranges = partner.ranges.filter(pl.col("name").str.starts_with(_OPTIMIZER))
    ops = theirs.with_columns(
        rank,
        pl.col("op_id", "parent_id") + first_id,
        pl.col("start_ns", "end_ns") + shift_ns,
    )
    first_graph = int(capture.graph_nodes["graph"].to_numpy().max(initial=-1)) + 1
    nodes = nodes.with_columns(
        rank,
        pl.col("graph") + first_graph,
        pl.col("op_id") + first_id,
        pl.col("start_ns") + shift_ns,
    )
    ranges = ranges.with_columns(rank, pl.col("start_ns", "end_ns") + shift_ns)
    return replace(
        capture,
        ops=pl.concat([own, ops]).sort(
            "start_ns", "end_ns", "op_id", descending=[False, True, False], maintain_order=True
        ),
        ranges=pl.concat([capture.ranges, ranges]).sort("start_ns", maintain_order=True),
        graph_nodes=pl.concat([capture.graph_nodes, nodes]),
    )


def node_tokens(nodes: pl.DataFrame, *, by_size: bool) -> list[Token]:
    """What tells nodes or replayed work apart: kind and name, with `by_size` grid and block."""
    kind = pl.col("kind").replace("collective", "kernel")
    # The calls of a capture do not say which way a copy goes.
    name = pl.when(kind == "kernel").then("name").alias("name")
    return nodes.select(kind, name, *(_SIZES if by_size else ())).rows()


def sizes_known(kernels: pl.DataFrame) -> bool:
    """Whether every kernel of `kernels` has its grid; ROCm's replays have none."""
    return not kernels.filter(pl.col("kind") == "kernel")["grid_x"].has_nulls()


def replayed_kernels(capture: Capture) -> pl.DataFrame:
    """The work that launches of graphs began: rows of `kernels` with `kernel_row` and `launch_ns`.

    In the order of the launches, and of the start of the work within each.
    """
    launches = (
        capture.launches.filter(
            pl.col("name").str.contains(GRAPH_LAUNCH) & pl.col("correlation").is_not_null()
        )
        .sort("start_ns", maintain_order=True)
        .unique(["rank", "process", "correlation"], keep="first", maintain_order=True)
        .select("rank", "process", "correlation", "thread", launch_ns="start_ns")
    )
    return (
        capture.kernels.with_row_index("kernel_row")
        .join(launches, on=["rank", "process", "correlation"], how="inner")
        .sort("rank", "launch_ns", "correlation", "start_ns", "kernel_row")
    )


def _replays(capture: Capture) -> bool:
    return (
        len(capture.processes) == 1
        and capture.launches["name"].str.contains(GRAPH_LAUNCH).any()
        and not replayed_kernels(capture).is_empty()
    )


def _only_captures(capture: Capture) -> bool:
    return len(capture.processes) == 1 and not capture.graph_nodes.is_empty()


def _same_rank(one: Capture, other: Capture) -> bool:
    """Whether nothing says that two captures of one process are of different ranks."""
    (first,), (second,) = one.processes, other.processes
    stated = "order" not in (first.rank_from, second.rank_from)
    return not stated or first.rank == second.rank


def _is_partner(capture: Capture, target: Capture) -> bool:
    if len(capture.processes) != 1 or not _same_rank(capture, target):
        return False
    return _only_captures(capture) or _runs_the_same(capture, target)


def _runs_the_same(eager: Capture, target: Capture) -> bool:
    """Whether `eager` holds enough of the work that the graphs of `target` replay."""
    nodes = _nodes(eager)
    if nodes.is_empty() or nodes["op_id"].is_null().all():
        return False
    replayed = replayed_kernels(target)
    by_size = sizes_known(replayed)
    known = set(node_tokens(nodes, by_size=by_size))
    tokens = Counter(node_tokens(replayed, by_size=by_size))
    found = sum(number for token, number in tokens.items() if token in known)
    return found >= (ENOUGH_BY_SIZE if by_size else ENOUGH_BY_NAME) * tokens.total()


def _nodes(partner: Capture) -> pl.DataFrame:
    """The nodes of its captures; of a trace without any, its eager work."""
    return eager_nodes(partner) if partner.graph_nodes.is_empty() else partner.graph_nodes


def eager_nodes(partner: Capture) -> pl.DataFrame:
    """The eager work of a capture of one rank as rows of `graph_nodes`, a graph each step.

    That is the work with a launch of its own, in the order of the launches.
    """
    launches = (
        partner.launches.filter(~pl.col("name").str.contains(GRAPH_LAUNCH))
        .drop_nulls("correlation")
        .sort("start_ns", maintain_order=True)
        .unique(["process", "correlation"], keep="first", maintain_order=True)
        .select("process", "correlation", "thread", launch_ns="start_ns")
    )
    work = (
        partner.kernels.filter(pl.col("kind") != "op")
        .join(launches, on=["process", "correlation"], how="inner")
        .sort("launch_ns", "start_ns", maintain_order=True)
    )
    if work.is_empty() or partner.ops.is_empty():
        return schema.empty("graph_nodes")
    rows = enclosing(partner.ops, work, "launch_ns")
    op_ids = partner.ops["op_id"].gather(pl.Series(rows).replace(NONE, None))
    steps = partner.steps.filter(pl.col("phase") == "profiled").sort("start_ns")
    nodes = (
        work.drop("start_ns")
        .join_asof(
            steps.select("start_ns", step_end_ns="end_ns").with_row_index("graph"),
            left_on="launch_ns",
            right_on="start_ns",
            check_sortedness=False,
        )
        .with_columns(op_id=op_ids, start_ns="launch_ns", origin=pl.lit("eager"))
    )
    if steps.height:
        nodes = nodes.filter(pl.col("launch_ns") < pl.col("step_end_ns"))
    nodes = nodes.with_columns(pl.col("graph").fill_null(0).cast(pl.Int64)).with_columns(
        node=pl.int_range(pl.len(), dtype=pl.Int32).over("graph")
    )
    return schema.conform("graph_nodes", nodes)


def _with_ancestors(ops: pl.DataFrame, op_ids: pl.Series) -> pl.DataFrame:
    """The operators `op_ids` and all above them."""
    wanted = op_ids.drop_nulls().unique()
    chosen = wanted
    while wanted.len():
        above = ops.filter(pl.col("op_id").is_in(wanted.implode()))["parent_id"].drop_nulls()
        wanted = above.unique().filter(~above.unique().is_in(chosen.implode()))
        chosen = pl.concat([chosen, wanted])
    return ops.filter(pl.col("op_id").is_in(chosen.implode()))


def _shift_ns(capture: Capture, ops: pl.DataFrame) -> int:
    """What to add to the times of a partner's `ops` so that they lie outside those of `capture`."""
    own = [
        time
        # Operators may be those of another partner.
        for frame in (capture.launches, capture.kernels)
        for time in (_least(frame["start_ns"]), _most(frame["end_ns"]))
        if time is not None
    ]
    begin, end = _least(ops["start_ns"]), _most(ops["end_ns"])
    if begin is None or end is None or not own or end < min(own) or begin > max(own):
        return 0
    return min(own) - _APART_NS - end


def _least(times: pl.Series) -> int | None:
    return None if times.null_count() == times.len() else int(times.drop_nulls().to_numpy().min())


def _most(times: pl.Series) -> int | None:
    return None if times.null_count() == times.len() else int(times.drop_nulls().to_numpy().max())
