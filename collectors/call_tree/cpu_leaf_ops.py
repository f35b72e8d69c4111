"""The leaf operators of a CPU run: each is one piece of work, as a kernel is on a GPU.

Walking down from the outermost operators of a thread, an operator is a leaf if its name is in the
table of those whose inner calls only prepare their own single piece of work, or if no leaf is
below it. Operators that only allocate, reshape or wrap are never leaves. So the leaves of a thread
never overlap, and each heavy operator is exactly one of them.

Some operators hand their call on: vmap calls the same operator on the whole batch, DTensor and
other tensor subclasses call it on what they hold, a sparse matrix product calls another product.
Their own shapes are what the caller sees; the work, with its shapes, is what runs below them.
Where nothing runs below (fake and meta tensors, results kept by selective checkpointing, an
operator that checkpointing stopped), nothing was computed, and there is no leaf. The same is true
of what torch.compile runs while it compiles.
"""

import re
from functools import cache
from importlib.resources import files

import msgspec
import polars as pl

from gpuprof.collectors.call_tree import cpu_compiling, cpu_own_work, cpu_stopped_ops
from gpuprof.collectors.call_tree.nesting import NONE, Integers
from gpuprof.collectors.call_tree.op_subtrees import Booleans, Subtrees, subtrees


class _Group(msgspec.Struct, frozen=True):
    source: str
    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    # One of them below another is the same work, handed on.
    one_kind: bool = False

    def holds(self, name: str) -> bool:
        return name in self.names or any(re.search(pattern, name) for pattern in self.patterns)


class _Table(msgspec.Struct, frozen=True):
    whole: tuple[_Group, ...]
    no_work: tuple[_Group, ...]
    wrappers: tuple[_Group, ...]
    interceptors: tuple[_Group, ...]


def kernels(ops: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """The leaves among `ops` as rows of the table kernels, and what their parents do themselves.

    `ops` are all operators of one process, sorted as the table ops is, with ids and parents;
    `ranges` its annotations. Device and context are 0, the stream is the thread. An operator above
    leaves that works itself has a row for each stretch of time outside of all that it calls.
    """
    trees = subtrees(ops)
    leaf = _leaves(ops, trees)
    barred = leaf | _never_leaves(ops) | cpu_compiling.compiling(ops, trees)
    may_work = trees.with_any_below(leaf) & ~trees.below_any(leaf) & ~barred
    columns = ("start_ns", "end_ns", "name", "process", "op_id", "thread")
    rows = pl.concat(
        [
            ops.filter(pl.Series(leaf)).select(columns),
            cpu_own_work.stretches(ops, ranges, may_work).select(columns),
        ]
    )
    return rows.select(
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
    return _leaves(ops, subtrees(ops))


def _leaves(ops: pl.DataFrame, trees: Subtrees) -> Booleans:
    intercepted = trees.with_any_below(_matching(ops["name"], _table().interceptors))
    barred = _never_leaves(ops) | intercepted | cpu_stopped_ops.stopped(ops, trees)
    barred |= cpu_compiling.compiling(ops, trees)
    kinds = _kinds(ops["name"])
    whole = (kinds != NONE) & ~trees.with_equal_below(kinds) & ~barred
    candidate = ~barred & ~trees.below_any(whole)
    # A candidate above another one is none: either that one is a leaf or one below it is.
    leaf: Booleans = candidate & (whole | ~trees.with_any_below(candidate))
    return leaf


def _never_leaves(ops: pl.DataFrame) -> Booleans:
    table = _table()
    return _matching(ops["name"], (*table.no_work, *table.wrappers, *table.interceptors))


def _kinds(names: pl.Series) -> Integers:
    """A number for each name that is of a whole piece of work; equal for one kind of work."""
    kinds = {name: _kind(name) for name in names.unique()}
    numbers = {kind: number for number, kind in enumerate(sorted(set(kinds.values()) - {""}))}
    known = {name: numbers.get(kind, NONE) for name, kind in kinds.items()}
    result: Integers = names.replace_strict(known, return_dtype=pl.Int64).to_numpy()
    return result


def _kind(name: str) -> str:
    group = next((group for group in _table().whole if group.holds(name)), None)
    if group is None:
        return ""
    # An operator and its in-place form are one.
    return group.source if group.one_kind else name.removesuffix("_")


def _matching(names: pl.Series, groups: tuple[_Group, ...]) -> Booleans:
    matching = [name for name in names.unique() if any(group.holds(name) for group in groups)]
    result: Booleans = names.is_in(matching).to_numpy()
    return result


@cache
def _table() -> _Table:
    text = files("gpuprof.collectors.call_tree").joinpath("cpu_leaf_ops.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table)
