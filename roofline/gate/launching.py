"""Which line launches the operators of a recording.

`gpuprof run` records the line of each call. Only what activation checkpointing repeats on a thread
of autograd's, as it does on a GPU, has none: it is what its first forward called.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import cache

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.inheriting import inherit
from gpuprof.collectors.call_tree.nesting import Integers
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.gate.call_text import call_text, tensors_of
from gpuprof.roofline.gate.result import Place
from gpuprof.roofline.work.attribution import rows_of
from gpuprof.roofline.work.op_tree import op_phases

# A set-up calls some operators of the steps too, a few times.
_NEARLY_ALL = 0.9
_UNKNOWN = 0


class CallCounts:
    """How often operators, and operators on such tensors, were called from which place."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[Place | None]] = {}

    def add(self, texts: Collection[str], place: Place | None, calls: int = 1) -> None:
        """Count `calls`, which have these texts: with their tensors and without."""
        for text in set(texts):
            self._counts.setdefault(text, Counter())[place] += calls

    def places(self) -> dict[str, Place | None]:
        """The place of each text that nearly always comes from one, None for the others."""
        found = {}
        for text, counts in self._counts.items():
            ((place, most),) = counts.most_common(1)
            found[text] = place if most >= _NEARLY_ALL * counts.total() else None
        return found


def recorded_places(captures: Iterable[Capture]) -> dict[str, Place]:
    """The line that launches each operator, and each operator on such tensors.

    Of one-rank `captures`, by calls as `call_text` has them; those are left out of which not nearly
    all come from one line, in a file below the program's working directory.
    """
    counts = CallCounts()
    for capture in captures:
        for texts, place in _calls(capture):
            counts.add(texts, place)
    return {text: place for text, place in counts.places().items() if place is not None}


def _calls(capture: Capture) -> Iterator[tuple[tuple[str, str], Place | None]]:
    """The texts of each call, the exact one first, and its place."""
    ops = capture.ops.with_columns(op_phases(capture).select("phase", "recompute"))
    arguments = ops.select("name", "input_dims", "input_types")
    called = cache(_texts)
    places = [_place(*row) for row in ops.select("file", "line").iter_rows()]
    table = [None, *dict.fromkeys(place for place in places if place is not None)]
    code_of = {place: code for code, place in enumerate(table)}
    codes = np.array([code_of[place] for place in places], np.int64)
    repeated = ops["recompute"].fill_null(False).to_numpy() & (codes == _UNKNOWN)
    if repeated.any():
        first = CallCounts()
        for row, place in zip(arguments.iter_rows(), places, strict=True):
            if place is not None:
                first.add(called(*row, backward=False), place)
        known = first.places()
        for number in np.flatnonzero(repeated).tolist():
            texts = called(*arguments.row(number), backward=False)
            found = next((known[text] for text in texts if text in known), None)
            codes[number] = code_of[found]
        codes = _with_nodes(ops, codes)
    phases = ops["phase"] == "backward"
    for row, backward, code in zip(arguments.iter_rows(), phases, codes.tolist(), strict=True):
        yield called(*row, backward=backward), table[code]


def _with_nodes(ops: pl.DataFrame, codes: Integers) -> Integers:
    """`codes` of places, with those of nodes that differentiate what has one, and of what is below.

    0 stands for an unknown place.
    """
    parents = rows_of(ops, ops["parent_id"])
    codes = inherit(codes, parents)
    nodes, differentiated = _nodes(ops)
    unknown = codes[nodes] == _UNKNOWN
    codes[nodes[unknown]] = codes[differentiated[unknown]]
    return inherit(codes, parents)


def _place(file: str | None, line: int | None) -> Place | None:
    """None for what is not in a file of the repository that the program runs in."""
    if file is None or line is None or file.startswith(("/", "<")):
        return None
    return Place(file=file, line=line)


def _texts(name: str, dims: str | None, types: str | None, *, backward: bool) -> tuple[str, str]:
    tensors = tensors_of(f"{dims} {types}") or ""
    return call_text(name, tensors, backward=backward), call_text(name, "", backward=backward)


def _nodes(ops: pl.DataFrame) -> tuple[Integers, Integers]:
    """Rows of autograd's nodes, and for each the row of the operator that it differentiates.

    An operator carries the number that the next node will get (pytorch
    aten/src/ATen/record_function.h): of those with one number the last made the node. What
    checkpointing calls again carries one, too.
    """
    numbered = ops.select(
        "sequence",
        "start_ns",
        "thread",
        is_node=(pl.col("phase") == "backward") & ~pl.col("recompute"),
        row=pl.int_range(pl.len()),
    ).filter(pl.col("sequence").is_not_null())
    nodes = numbered.filter("is_node")
    forward = (
        numbered.filter(~pl.col("is_node"))
        .sort("start_ns")
        .group_by("sequence")
        # Each thread counts for itself.
        .agg(made=pl.col("row").last(), threads=pl.col("thread").n_unique())
        .filter(pl.col("threads") == 1)
    )
    pairs = nodes.join(forward, on="sequence")
    return pairs["row"].to_numpy(), pairs["made"].to_numpy()
