"""What each kernel of a compiled graph is made of, by its place in the graph's code.

In one run of a graph its kernels have the order of the calls in its code, so the second
triton_poi_fused_gelu_0 is the second call of that name. A run that has another number of a name
than the code, because the profile began or ended within it, tells nothing of those.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.inheriting import UNKNOWN, inherit
from gpuprof.collectors.call_tree.nesting import NONE, Integers, enclosing
from gpuprof.collectors.kernel_origins import KernelOrigin, encode_origins
from gpuprof.collectors.stacks import put_below

_PLACE: Final = ("module", "file", "line", "function", "function_line")
_PLACE_TYPES: Final = {name: pl.Int32 if "line" in name else pl.String for name in _PLACE}


def with_origins(ops: pl.DataFrame, runs: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """`ops`, of one process, with `origins`, and the places of what is in compiled graphs.

    Its columns of lines and modules are filled as far as the program's frames tell; each op_id
    counts the rows from 0. `runs` and `calls` are tables of `gpuprof.collectors.schema`.
    """
    if ops.is_empty() or runs.is_empty() or calls.is_empty():
        return ops
    parents = ops["parent_id"].fill_null(NONE).to_numpy()
    called = _calls_of(ops, parents, runs, calls)
    if (called == UNKNOWN).all():
        return ops
    chosen = ops.select(
        "module", "stack", row=pl.int_range(pl.len()), call=pl.Series(called - 1)
    ).filter(pl.col("call") >= 0)
    origins = {call: _Origins(rows) for (call,), rows in calls.sort("origin").group_by("call")}
    # Kernels that are called alike differ in the module that the whole graph ran in.
    kinds = chosen.select("call", "module", "stack").unique(maintain_order=True)
    found = [origins[call].called(module, stack) for call, module, stack in kinds.iter_rows()]
    told = kinds.hstack(
        [
            pl.Series("found_" + name, [getattr(each, name) for each in found], dtype)
            for name, dtype in {**_PLACE_TYPES, "stack": pl.String, "origins": pl.String}.items()
        ]
    )
    table = chosen.join(told, on=("call", "module", "stack"), how="left", nulls_equal=True).drop(
        "call", "module"
    )
    # What a kernel calls, such as a copy into its output, belongs to it.
    rows = np.full(ops.height, UNKNOWN, np.int64)
    rows[table["row"].to_numpy()] = np.arange(1, table.height + 1)
    rows = inherit(rows, parents)
    known = pl.Series(rows != UNKNOWN)
    told = table[np.maximum(rows - 1, 0)]
    return ops.with_columns(
        pl.when(known).then(told["found_" + name]).otherwise(pl.col(name)).alias(name)
        for name in (*_PLACE, "stack", "origins")
    )


def _calls_of(
    ops: pl.DataFrame, parents: Integers, runs: pl.DataFrame, calls: pl.DataFrame
) -> Integers:
    """One more than the number of the call that each operator is; UNKNOWN for all others."""
    runs = runs.sort("start_ns", maintain_order=True)
    run = enclosing(runs, ops, "start_ns")
    graphs = np.where(run == NONE, NONE, runs["graph"].to_numpy()[run])
    wanted = calls.select("graph", "call", name="kernel").unique(maintain_order=True).sort("call")
    wanted = wanted.with_columns(
        nth=pl.int_range(pl.len()).over("graph", "name"), times=pl.len().over("graph", "name")
    )
    table = ops.select(
        "name", graph=pl.Series(graphs), run=pl.Series(run), row=pl.int_range(pl.len())
    )
    named = table.join(wanted.select("graph", "name").unique(), on=("graph", "name"), how="semi")
    # Only the outermost: one operator of a library may call another that is called itself.
    marks = np.full(ops.height, UNKNOWN, np.int64)
    marks[named["row"].to_numpy()] = named["run"].to_numpy() + 1
    above = np.where(parents != NONE, inherit(marks, parents)[parents], UNKNOWN)
    named = named.filter(pl.Series(above)[named["row"]] != pl.col("run") + 1).sort("row")
    found = named.with_columns(
        nth=pl.int_range(pl.len()).over("run", "name"), times=pl.len().over("run", "name")
    ).join(wanted, on=("graph", "name", "nth", "times"), how="inner")
    called = np.full(ops.height, UNKNOWN, np.int64)
    called[found["row"].to_numpy()] = found["call"].to_numpy() + 1
    return called


@dataclass(frozen=True)
class _Found:
    """What the table ops says of a kernel."""

    module: str | None
    file: str | None
    line: int | None
    function: str | None
    function_line: int | None
    stack: str | None
    origins: str


class _Origins:
    """The operators of one call, `rows` of the table compiled_calls."""

    def __init__(self, rows: pl.DataFrame) -> None:
        found = list(rows.iter_rows(named=True))
        # A backward pass computes again some of what its forward did; it is about the gradients.
        backward = [row for row in found if row["backward"]]
        self._rows = [*backward, *(row for row in found if not row["backward"])]
        self._own = backward or found

    def called(self, outer: str | None, stack: str | None) -> _Found:
        """Where the graph ran in the module `outer`, called from `stack`."""
        modules = [_module(row, outer) for row in self._rows]
        # What autograd does beside the gradients of operators, such as adding them up, has no
        # place, and lies in no other module than they do.
        own = [
            module
            for row, module in zip(self._own, modules, strict=False)
            if module is not None or row["module"] or row["file"] is not None
        ]
        first = next((row for row in self._own if row["file"] is not None), None)
        place = {} if first is None else {name: first[name] for name in _PLACE[1:]}
        origins = [
            KernelOrigin(row["operator"], module, *(row[name] for name in _PLACE[1:]))
            for row, module in zip(self._rows, modules, strict=True)
        ]
        return _Found(
            module=_around(own) or outer,
            **dict.fromkeys(_PLACE[1:], None) | place,
            stack=stack if not stack or first is None else put_below(stack, first["stack"]),
            origins=encode_origins(dict.fromkeys(origins)),
        )


def _module(row: dict[str, object], outer: str | None) -> str | None:
    """The path of the module of one origin; None where it may be several.

    What the program calls in no module that dynamo knows is called by that in which the graph ran.
    """
    candidates = msgspec.json.decode(str(row["modules"]), type=list[str])
    if not row["module"]:
        return None if row["file"] is None else outer
    below = f"{outer}.{row['module']}"
    if row["of_self"] and below in candidates:
        return below
    if row["module"] in candidates:
        return str(row["module"])
    return candidates[0] if len(candidates) == 1 else None


def _around(modules: Iterable[str | None]) -> str | None:
    """The innermost path that all of `modules` lie in; None where one is not known."""
    paths = [None if path is None else path.split(".") for path in modules]
    known = [path for path in paths if path is not None]
    if not known or len(known) < len(paths):
        return None
    shared = []
    for parts in zip(*known, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared) or None
