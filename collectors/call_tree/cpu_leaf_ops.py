"""The leaf operators of a CPU run: each is one piece of work, as a kernel is on a GPU.

Walking down from the outermost operators of a thread, an operator is a leaf if its name is in the
table of those whose inner calls only prepare their own single piece of work, or if no leaf is
below it. Operators that only allocate, reshape or wrap are never leaves. So the leaves of a thread
never overlap, and each heavy operator is exactly one of them.
"""

import re
from functools import cache
from importlib.resources import files

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from gpuprof.collectors.call_tree.nesting import NONE, Integers, thread_codes

Booleans = npt.NDArray[np.bool_]


class _Group(msgspec.Struct, frozen=True):
    source: str
    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()


class _Table(msgspec.Struct, frozen=True):
    whole: tuple[_Group, ...]
    no_work: tuple[_Group, ...]
    wrappers: tuple[_Group, ...]


def kernels(ops: pl.DataFrame) -> pl.DataFrame:
    """The leaves among `ops` as rows of the table kernels.

    `ops` are all operators of one process, sorted as the table ops is, with ids and parents.
    Device and context are 0, the stream is the thread.
    """
    leaf = leaves(ops)
    return ops.filter(pl.Series(leaf)).select(
        "start_ns",
        "end_ns",
        "name",
        "process",
        "op_id",
        kind=pl.lit("op"),
        device=pl.lit(0),
        context=pl.lit(0),
        stream=pl.col("thread"),
    )


def leaves(ops: pl.DataFrame) -> Booleans:
    """For each row of `ops` whether it is a leaf. Its op_id must count the rows from 0."""
    whole, barred = _named(ops["name"])
    parent = ops["parent_id"].fill_null(NONE).to_numpy()
    size = _subtree_sizes(parent)
    # On each thread the operators below one follow it directly: a walk down the tree.
    order = np.argsort(thread_codes(ops)[0], kind="stable")
    first, end = np.arange(len(order)) + 1, np.arange(len(order)) + size[order]
    inside = np.zeros(len(order) + 1, np.int64)
    outer = whole[order]
    np.add.at(inside, first[outer], 1)
    np.add.at(inside, end[outer], -1)
    candidate = (np.cumsum(inside)[:-1] == 0) & ~barred[order]
    # A candidate above another one is none: either that one is a leaf or one below it is.
    before = np.concatenate(([0], np.cumsum(candidate)))
    alone = before[end] == before[first]
    result = np.empty(len(order), np.bool_)
    result[order] = candidate & (outer | alone)
    return result


def _subtree_sizes(parent: Integers) -> Integers:
    """How many operators each one holds, itself included. Parents stand before children."""
    sizes = [1] * len(parent)
    for position, above in zip(range(len(parent) - 1, -1, -1), parent[::-1].tolist(), strict=True):
        if above != NONE:
            sizes[above] += sizes[position]
    return np.array(sizes, np.int64)


def _named(names: pl.Series) -> tuple[Booleans, Booleans]:
    """Which names are of whole pieces of work, and which are never leaves."""
    table = _table()
    distinct = names.unique()
    whole = {name for name in distinct if _matches(name, table.whole)}
    barred = {name for name in distinct if _matches(name, (*table.no_work, *table.wrappers))}
    return names.is_in(list(whole)).to_numpy(), names.is_in(list(barred)).to_numpy()


def _matches(name: str, groups: tuple[_Group, ...]) -> bool:
    return any(
        name in group.names or any(re.search(pattern, name) for pattern in group.patterns)
        for group in groups
    )


@cache
def _table() -> _Table:
    text = files("gpuprof.collectors.call_tree").joinpath("cpu_leaf_ops.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table)
