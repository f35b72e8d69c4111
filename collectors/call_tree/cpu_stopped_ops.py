"""Operators of a CPU run that activation checkpointing stopped before they computed anything.

torch.utils.checkpoint without reentrance repeats the forward inside the first backward node that
asks for a dropped tensor, and ends it with an exception once the last one is there
(torch/utils/checkpoint.py, _StopRecomputationError). An operator that saves inputs does so before
its kernel runs: where one of them is that last tensor, the trace holds the operator, and it did
nothing. One that saves a result has computed it by then.
"""

from functools import cache
from importlib.resources import files
from typing import Final

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import NONE, Integers
from gpuprof.collectors.call_tree.op_subtrees import Booleans, Subtrees

# What a node of the backward pass is called: tools/autograd/derivatives.yaml.
_NODE: Final = r"Backward\d+$"
# The hook that takes a saved tensor detaches it.
_SAVING: Final = ("aten::detach", "detach")


class _Table(msgspec.Struct, frozen=True):
    source: str
    names: tuple[str, ...]


def stopped(ops: pl.DataFrame, trees: Subtrees) -> Booleans:
    """Which rows of `ops` are a stopped operator, or hold nothing but one."""
    node: Booleans = ops["name"].str.contains(_NODE).to_numpy()
    saving: Booleans = ops["name"].is_in(_SAVING).to_numpy()
    only_saves = trees.with_any_below(saving) & ~trees.with_any_below(~saving)
    found: Booleans = only_saves & ~node & ~saving & trees.below_any(node)
    if not found.any():
        return found
    # An operator that records a graph carries a sequence number: inside a backward node that is
    # the repeated forward. The last of them is the one that may have been stopped.
    recording = ~node & ops["sequence"].is_not_null().to_numpy()
    within = _nearest(node, ops["parent_id"].fill_null(NONE).to_numpy())
    rows = np.flatnonzero(recording & (within != NONE))
    last = np.zeros(ops.height, np.bool_)
    # Assigned in order: of each node the last row stays.
    of_node = np.full(ops.height, NONE, np.int64)
    of_node[within[rows]] = rows
    last[of_node[of_node != NONE]] = True
    found &= last & ~ops["name"].is_in(_saves_its_result()).to_numpy()
    # What called it ends with it; what else ran inside that is work of its own.
    found |= trees.with_any_below(found) & ~node
    return found


def _nearest(rows: Booleans, parent: Integers) -> Integers:
    """For each operator the nearest of `rows` above it, or NONE."""
    above: Integers = parent.copy()
    while (climbing := (above != NONE) & ~rows[above]).any():
        above[climbing] = parent[above[climbing]]
    return above


@cache
def _saves_its_result() -> tuple[str, ...]:
    text = files("gpuprof.collectors.call_tree").joinpath("saved_results.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).names
