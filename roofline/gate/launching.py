"""Which line launches the operators of a recording.

A running program shows where Python calls an operator. Operators that this one calls inside, and
those that autograd runs for it in the backward pass, show no line; the recorded tree of operators
says whose they are.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.inheriting import inherit, outermost
from gpuprof.collectors.call_tree.nesting import Integers
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.gate.call_text import call_text, tensors_of
from gpuprof.roofline.gate.result import Place
from gpuprof.roofline.work.attribution import rows_of
from gpuprof.roofline.work.op_tree import op_phases

# A set-up calls some operators of the steps too, a few times.
_NEARLY_ALL = 0.9
_UNKNOWN = 0


class OpLine(msgspec.Struct, frozen=True, kw_only=True):
    """One operator at one line. The file is relative to the working directory of the process."""

    # As `call_text` has them, without its tensors and with them.
    op: str
    call: str
    file: str
    line: int
    calls: int


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


def launching_places(lines: Iterable[OpLine]) -> dict[str, Place | None]:
    """The line that launches each operator, and each operator on such tensors.

    None where not nearly all of its calls come from one line.
    """
    counts = CallCounts()
    for line in lines:
        counts.add((line.call, line.op), Place(file=line.file, line=line.line), line.calls)
    return counts.places()


def recorded_places(
    captures: Iterable[Capture], seen: Mapping[str, Place | None]
) -> dict[str, Place]:
    """The places of the operators in one-rank `captures`, of which Python was `seen` to call some.

    Of an operator inside others it is that of the outermost one seen; in the backward pass that of
    the operator which is differentiated. `seen` and the result are by calls as `call_text` has
    them; None is for those from several places.
    """
    counts = CallCounts()
    for capture in captures:
        for texts, place in _calls(capture, seen):
            counts.add(texts, place)
    return {text: place for text, place in counts.places().items() if place is not None}


def _calls(
    capture: Capture, seen: Mapping[str, Place | None]
) -> Iterator[tuple[tuple[str, str], Place | None]]:
    """The texts of each call, the exact one first, and its place."""
    ops = capture.ops.with_columns(op_phases(capture).select("phase", "recompute"))
    # What nobody saw has code 0; what has several places hides what it calls inside.
    places = [None, *dict.fromkeys(seen.values())]
    code_of = {place: code for code, place in enumerate(places) if code != _UNKNOWN}

    @cache
    def described(
        name: str, dims: str | None, types: str | None, phase: str, recompute: bool
    ) -> tuple[tuple[str, str], int]:
        texts = _texts(name, dims, types, backward=phase == "backward")
        # Checkpointing calls the forward pass again, perhaps from a thread of autograd's.
        first = _texts(name, dims, types, backward=False) if recompute else ()
        text = next((text for text in (*texts, *first) if text in seen), None)
        return texts, _UNKNOWN if text is None else code_of[seen[text]]

    calls, own = [], []
    for row in ops.select("name", "input_dims", "input_types", "phase", "recompute").iter_rows():
        texts, code = described(*row)
        calls.append(texts)
        own.append(code)
    codes = np.array(own, np.int64)
    parents = rows_of(ops, ops["parent_id"])
    codes = outermost(codes, parents)
    nodes, differentiated = _nodes(ops)
    unknown = codes[nodes] == _UNKNOWN
    codes[nodes[unknown]] = codes[differentiated[unknown]]
    codes = inherit(codes, parents)
    for texts, code in zip(calls, codes.tolist(), strict=True):
        yield texts, places[code]


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
