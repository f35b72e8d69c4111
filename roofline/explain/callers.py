"""Which lines of the program lead to some device work, as a tree from the outermost on."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import polars as pl

from gpuprof.roofline.explanation_figures import Caller

# What nn.Module does around a module's own function.
_MODULE_CALL: Final = ("_wrapped_call_impl", "_call_impl")
# Of the work; calls with less are left out, and the shares of the others say so.
_LEAST_SHARE: Final = 0.005
# A frame and all that it called, each with its time; frames from the outermost on.
_Stacks = Sequence[tuple[tuple[str, ...], int]]


def callers_of(kernels: pl.DataFrame, ops: pl.DataFrame) -> tuple[Caller, ...]:
    """The tree of the frames above `kernels`, with shares of their time; none without stacks.

    Reads their op_id and duration_ns, and the operators' op_id and stack.
    """
    if ops["stack"].null_count() == ops.height:
        return ()
    known = kernels.join(ops.select("op_id", "stack"), on="op_id", how="left")
    all_ns = int(known["duration_ns"].sum())
    by_stack = (
        known.drop_nulls("stack")
        .group_by("stack", maintain_order=True)
        .agg(pl.col("duration_ns").sum())
    )
    stacks = [(_frames(stack), int(ns)) for stack, ns in by_stack.iter_rows()]
    return _tree(stacks, all_ns) if all_ns else ()


def _frames(stack: str) -> tuple[str, ...]:
    frames = stack.split("\n")
    return tuple(frame for frame in reversed(frames) if not frame.endswith(_MODULE_CALL))


def _tree(stacks: _Stacks, all_ns: int) -> tuple[Caller, ...]:
    inner: defaultdict[str, list[tuple[tuple[str, ...], int]]] = defaultdict(list)
    for frames, ns in stacks:
        if frames:
            inner[frames[0]].append((frames[1:], ns))
    found = []
    for frame, below in inner.items():
        fraction = sum(ns for _, ns in below) / all_ns
        if fraction >= _LEAST_SHARE:
            found.append(Caller(frame=frame, fraction=fraction, called=_tree(below, all_ns)))
    return tuple(sorted(found, key=lambda each: (-each.fraction, each.frame)))
