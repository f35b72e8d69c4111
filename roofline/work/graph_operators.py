"""Which operator each piece of work of a replayed CUDA graph belongs to.

A replay runs the nodes of a graph, whose operators ran once, when it was captured. So the work of a
replay, in order, is compared with the nodes of each captured graph and, where none of these fits,
with eager work of the same program: by kernel name, grid and block, as a longest common
subsequence. What fits in more than one way has an operator where all ways agree on its name and
arguments, and none otherwise; its module and line are known where they agree on those too.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.graph_partners import (
    ENOUGH_BY_NAME,
    ENOUGH_BY_SIZE,
    Token,
    eager_nodes,
    node_tokens,
    replayed_kernels,
    sizes_known,
)
from gpuprof.collectors.joining.sequences import forced_pairs
from gpuprof.roofline.work.graph_batch_sizes import captured_size, replayed_sizes

_ARGUMENTS: Final = ("name", "input_dims", "input_types", "input_strides", "concrete_inputs")
_PLACE: Final = ("module", "file", "line", "function", "function_line")


@dataclass(frozen=True)
class _Learned:
    """An operator of one piece of replayed work, and whether order alone tells it."""

    op_id: int
    certain: bool
    # False where it may be one of several operators, which are alike and in different places.
    placed: bool = True


# Of each piece of work of one replay, in order; None where its operator is unknown.
_Told = list[_Learned | None]


@dataclass(frozen=True)
class _Reference:
    """The nodes of one graph, or of one eager step, in order."""

    op_ids: list[int | None]
    # Kinds, names and sizes; sizes are null where they are unknown.
    tokens: list[Token]
    sized: bool
    # False where only the calls were recorded, as those of CUDA's runtime: they name no kernel.
    named: bool
    # Work that ran step by step: where several steps fit, it is the same place in each.
    eager: bool
    # The batch size that it was captured for, where the program says it.
    batch_size: int | None

    @classmethod
    def of(cls, nodes: pl.DataFrame) -> "_Reference":
        """The reference that rows of `graph_nodes` make."""
        nodes = nodes.sort("node")
        named = not nodes.filter(pl.col("kind") == "kernel")["name"].has_nulls()
        return cls(
            nodes["op_id"].to_list(),
            node_tokens(nodes, by_size=True),
            sizes_known(nodes),
            named,
            (nodes["origin"] == "eager").all(),
            captured_size(nodes["label"][0]),
        )


@dataclass(frozen=True)
class _Replay:
    """The pieces of one replay, in order. Replays that are equal have the same operators."""

    tokens: tuple[Token, ...]
    # The grids of its kernels are known.
    sized: bool
    batch_size: int | None


def operators_of_replays(capture: Capture) -> pl.DataFrame:
    """A row (kernel_row, op_id, op_certain, op_placed) for each piece of replayed work of one rank.

    op_id is null where no operator is known. op_certain is false where the piece is one of several
    whose operators are alike, and null without an operator; op_placed is false where these are in
    different places of the program.
    """
    replayed = replayed_kernels(capture)
    learned: _Told = []
    if not replayed.is_empty():
        sized = sizes_known(replayed)
        tokens = node_tokens(replayed, by_size=True)
        batch_sizes = replayed_sizes(replayed, capture.ranges)
        captured = _references(capture.graph_nodes)
        eager = [] if capture.ops.is_empty() else _references(eager_nodes(capture))
        signatures = _Signatures(capture.ops)
        known: dict[_Replay, _Told] = {}
        for count in replayed.group_by("process", "correlation", maintain_order=True).len()["len"]:
            first = len(learned)
            replay = _Replay(tuple(tokens[first : first + count]), sized, batch_sizes[first])
            if replay not in known:
                known[replay] = (
                    _learn(replay, captured, signatures)
                    or _learn(replay, eager, signatures)
                    or [None] * count
                )
            learned += known[replay]
    return pl.DataFrame(
        {
            "kernel_row": replayed["kernel_row"],
            "op_id": pl.Series([each and each.op_id for each in learned], dtype=pl.Int64),
            "op_certain": pl.Series([each and each.certain for each in learned], dtype=pl.Boolean),
            "op_placed": pl.Series([each and each.placed for each in learned], dtype=pl.Boolean),
        }
    )


def without_places(learned: pl.DataFrame, ops: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`learned`, and further rows of `ops`: what is not placed has an operator without a place.

    That is like the one that it stands for, at the same time and below the same operators.
    """
    unplaced = learned.filter(~pl.col("op_placed"))["op_id"].unique().sort()
    first_id = int(ops["op_id"].to_numpy().max(initial=-1)) + 1
    ids = {op_id: first_id + number for number, op_id in enumerate(unplaced)}
    stand_ins = ops.filter(pl.col("op_id").is_in(unplaced.implode())).with_columns(
        pl.col("op_id").replace(ids),
        *(pl.lit(None, ops.schema[name]).alias(name) for name in _PLACE),
    )
    placed = pl.col("op_placed").fill_null(True)
    op_ids = pl.when(placed).then("op_id").otherwise(pl.col("op_id").replace(ids))
    return learned.with_columns(op_id=op_ids), stand_ins


def _references(nodes: pl.DataFrame) -> list[_Reference]:
    return [
        _Reference.of(part)
        for part in nodes.partition_by("graph", maintain_order=True)
        if part["op_id"].is_not_null().any()
    ]


class _Signatures:
    """What makes operators alike: name and arguments, and the names of those above."""

    def __init__(self, ops: pl.DataFrame) -> None:
        self._places = {op_id: rest for op_id, *rest in ops.select("op_id", *_PLACE).iter_rows()}
        columns = ops.select("op_id", "parent_id", *_ARGUMENTS)
        self._rows = {op_id: rest for op_id, *rest in columns.iter_rows()}

    def one_of(self, op_ids: Sequence[int], *, certain: bool) -> _Learned | None:
        """The operator of a piece that may be any of `op_ids`; None where they are not alike."""
        if len(set(op_ids)) > 1 and len({self._of(op_id) for op_id in op_ids}) > 1:
            return None
        first = op_ids[0]
        placed = all(self._places[op_id] == self._places[first] for op_id in op_ids)
        return _Learned(first, certain, placed)

    def _of(self, op_id: int) -> tuple[Any, ...]:
        parent, *arguments = self._rows[op_id]
        names = []
        while parent in self._rows:
            parent, name, *_ = self._rows[parent]
            names.append(name)
        return (*arguments, *names)


def _learn(replay: _Replay, references: Sequence[_Reference], signatures: _Signatures) -> _Told:
    """What the references that fit `replay` best tell of it; [] where none fits."""
    best: list[_Told] = []
    most, eager = 0, True
    for reference in references:
        found = _fitted(replay, reference, signatures)
        number = sum(each is not None for each in found)
        if number > most:
            best, most, eager = [], number, True
        if number and number == most:
            best.append(found)
            eager = eager and reference.eager
    if len(best) <= 1:
        return best[0] if best else []
    return [_agreed(ways, signatures, eager=eager) for ways in zip(*best, strict=True)]


def _agreed(
    ways: Sequence[_Learned | None], signatures: _Signatures, *, eager: bool
) -> _Learned | None:
    """What all references say of one piece; None where they differ."""
    told = [each for each in ways if each is not None]
    if len(told) < len(ways):
        return None
    certain = eager and all(each.certain for each in told)
    found = signatures.one_of([each.op_id for each in told], certain=certain)
    return found and replace(found, placed=found.placed and all(each.placed for each in told))


def _fitted(replay: _Replay, reference: _Reference, signatures: _Signatures) -> _Told:
    """The operators that `reference` tells of `replay`; none where too little of it fits."""
    by_size = reference.named and replay.sized and reference.sized
    sizes = {replay.batch_size, reference.batch_size} - {None}
    if not by_size and len(sizes) > 1:
        # Names and kinds are the same at many batch sizes.
        return []
    if not reference.named:
        return _by_place(replay, reference)
    mine, theirs = (
        tuple(token if by_size else token[:2] for token in tokens)
        for tokens in (replay.tokens, reference.tokens)
    )
    found: _Told = [None] * len(mine)
    for one, nodes in _candidates(mine, theirs, ENOUGH_BY_SIZE if by_size else ENOUGH_BY_NAME):
        op_ids = [op_id for node in nodes if (op_id := reference.op_ids[node]) is not None]
        if len(op_ids) == len(nodes):
            found[one] = signatures.one_of(op_ids, certain=len(nodes) == 1)
    return found


# Layers that are graphs of their own are alike.
@lru_cache(maxsize=256)
def _candidates(
    mine: tuple[Token, ...], theirs: tuple[Token, ...], enough: float
) -> tuple[tuple[int, list[int]], ...]:
    """Pieces of `mine` with the nodes of `theirs` that each may be; () where too few fit."""
    if (Counter(mine) & Counter(theirs)).total() < enough * len(mine):
        return ()
    forced, unsure = forced_pairs(mine, theirs)
    if len(forced) + len(unsure) < enough * len(mine):
        return ()
    found = {one: [other] for one, other in forced}
    found.update({one: [earliest, latest] for one, earliest, latest in unsure})
    found.update(_out_of_order(mine, theirs, found))
    return tuple(found.items())


def _out_of_order(
    mine: Sequence[Token], theirs: Sequence[Token], candidates: dict[int, list[int]]
) -> dict[int, list[int]]:
    """Nodes that pieces without any may be: branches of a graph run beside each other.

    A piece may be any node of its kind that no other piece is, where there are as many of both.
    """
    taken = {node for nodes in candidates.values() for node in nodes}
    pieces: defaultdict[Token, list[int]] = defaultdict(list)
    nodes: defaultdict[Token, list[int]] = defaultdict(list)
    for place, token in enumerate(mine):
        if place not in candidates:
            pieces[token].append(place)
    for place, token in enumerate(theirs):
        if place not in taken:
            nodes[token].append(place)
    return {
        piece: nodes[token]
        for token, places in pieces.items()
        if len(places) == len(nodes[token])
        for piece in places
    }


def _by_place(replay: _Replay, reference: _Reference) -> _Told:
    """By order alone: the nodes have the kinds of the pieces, one for one."""
    kinds = [kind for kind, *_ in replay.tokens]
    if kinds != [kind for kind, *_ in reference.tokens]:
        return []
    return [None if op_id is None else _Learned(op_id, certain=False) for op_id in reference.op_ids]
