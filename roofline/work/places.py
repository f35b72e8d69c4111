"""Where in the program each piece of device work comes from: module, line, and operator called."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.autograd_nodes import differentiated
from gpuprof.collectors.call_tree.inheriting import UNKNOWN, inherit
from gpuprof.collectors.call_tree.nesting import NONE, Integers
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.kernel_origins import KernelOrigin, decode_origins, encode_origins
from gpuprof.roofline.module_figures import FusedOperator, SourceLine
from gpuprof.roofline.work.attribution import parent_rows, rows_of
from gpuprof.roofline.work.module_folding import folded_paths
from gpuprof.roofline.work.op_names import nodes_among_ops

_PLACE = ("module", "file", "line", "function", "function_line", "origins")


@dataclass(frozen=True)
class ProgramPlace:
    """A module and a line of the program."""

    # With repeated blocks taken together; "" for none, or where it is not known.
    module: str = ""
    source: SourceLine | None = None
    # Of what torch.compile generated: the operators that it is made of.
    fused: tuple[FusedOperator, ...] = ()


NOWHERE: Final = ProgramPlace()


@dataclass(frozen=True)
class ProgramPlaces:
    """The places of device work, by the number in its column `place`."""

    table: tuple[ProgramPlace, ...] = (NOWHERE,)
    # How many modules of the program each path in `table`, and each that it lies in, stands for.
    instances: Mapping[str, int] = field(default_factory=dict)

    def number_of(self, place: ProgramPlace) -> int | None:
        """The number of `place`; None where no work comes from there."""
        return self.table.index(place) if place in self.table else None


def with_places(kernels: pl.DataFrame, capture: Capture) -> tuple[pl.DataFrame, ProgramPlaces]:
    """`kernels`, of a one-rank capture, with the columns place and caller.

    `place` is a number in the `ProgramPlaces`; what has no operator is nowhere. `caller` is the
    outermost operator around the owner, in a backward pass that of the operator which is
    differentiated, "" where there is none.
    """
    ops = capture.ops
    # What owns itself is where the operator is that launched it.
    rows = rows_of(ops, pl.select(_owner(kernels)).to_series())
    known = pl.Series(rows != NONE)
    if not ops.height or not known.any():
        return kernels.with_columns(place=pl.lit(0), caller=pl.lit("")), ProgramPlaces()
    at = np.maximum(rows, 0)
    found = ops.select(*_PLACE)[at].with_columns(
        pl.when(known).then(pl.col(name)).otherwise(None).alias(name) for name in _PLACE
    )
    texts = found["origins"].drop_nulls().unique().to_list()
    origins = {text: decode_origins(text) for text in texts}
    fused = {origin.module for each in origins.values() for origin in each if origin.module}
    paths = folded_paths({*found["module"].drop_nulls(), *fused})
    folded = found.with_columns(
        pl.col("module").replace_strict(paths, default=None, return_dtype=pl.String),
        pl.col("origins").replace_strict(
            {text: _folded(each, paths) for text, each in origins.items()},
            default=None,
            return_dtype=pl.String,
        ),
    )
    table = folded.unique(maintain_order=True).with_row_index("place")
    places = folded.join(table, on=_PLACE, how="left", nulls_equal=True, maintain_order="left")
    callers = _callers(capture, at)
    return (
        kernels.with_columns(
            place=places["place"].cast(pl.Int64),
            caller=pl.when(known).then(callers).otherwise(pl.lit("")),
        ),
        ProgramPlaces(tuple(_place(row) for row in table.iter_rows(named=True)), _instances(paths)),
    )


def _owner(kernels: pl.DataFrame) -> pl.Expr:
    owner = pl.lit(kernels["owner_op_id"])
    return pl.when(pl.lit(kernels["owner_id"]) >= 0).then(owner).otherwise(pl.lit(kernels["op_id"]))


def _folded(origins: Sequence[KernelOrigin], paths: Mapping[str, str]) -> str:
    return encode_origins(
        dict.fromkeys(
            msgspec.structs.replace(origin, module=paths.get(origin.module or ""))
            for origin in origins
        )
    )


def _place(row: Mapping[str, object]) -> ProgramPlace:
    module, file, line, function, function_line, origins = (row[name] for name in _PLACE)
    return ProgramPlace(
        str(module or ""),
        _source(file, line, function, function_line),
        tuple(map(_fused, decode_origins(origins))) if isinstance(origins, str) else (),
    )


def _fused(origin: KernelOrigin) -> FusedOperator:
    source = _source(origin.file, origin.line, origin.function, origin.function_line)
    return FusedOperator(origin.operator, origin.module or "", source)


def _source(
    file: object, line: object, function: object, function_line: object
) -> SourceLine | None:
    if not isinstance(file, str):
        return None
    return SourceLine(
        file,
        line if isinstance(line, int) else None,
        str(function or ""),
        function_line if isinstance(function_line, int) else 0,
    )


def _instances(paths: Mapping[str, str]) -> dict[str, int]:
    """How many modules each folded path and each prefix of one stands for."""
    members: defaultdict[str, set[str]] = defaultdict(set)
    for path, folded in paths.items():
        parts, folded_parts = path.split("."), folded.split(".")
        for length in range(1, len(parts) + 1):
            members[".".join(folded_parts[:length])].add(".".join(parts[:length]))
    return {folded: len(each) for folded, each in members.items()}


def _callers(capture: Capture, at: Integers) -> pl.Series:
    """The name of the outermost operator around each row `at` in `ops`, "" where there is none."""
    ops, parents, node = capture.ops, parent_rows(capture), nodes_among_ops(capture)
    numbers = np.arange(1, ops.height + 1)
    below_node = (parents != NONE) & node[parents]
    # One that is elsewhere than what it stands in was called by code of the program.
    elsewhere = ops["file"].is_not_null().to_numpy()
    if elsewhere.any():
        places = ops.select(_PLACE).hash_rows().to_numpy()
        elsewhere &= places != places[parents]
    first = ~node & ((parents == NONE) | below_node | elsewhere)
    outermost = inherit(np.where(first, numbers, UNKNOWN), parents) - 1
    nodes, made = differentiated(ops, node)
    forward = np.full(ops.height, UNKNOWN, np.int64)
    forward[nodes] = outermost[made] + 1
    forward = inherit(forward, parents) - 1
    # What records a graph inside a node is a forward pass that is repeated there, and what was
    # compiled says itself what it is made of.
    told = ops["sequence"].is_not_null() | ops["origins"].is_not_null()
    own = below_node & told.to_numpy()
    rows = np.where(below_node[outermost] & ~own[outermost], forward[outermost], outermost)
    rows = np.where(outermost == NONE, forward, rows)
    found = pl.Series(rows[at])
    return ops["name"].gather(found.set(found == NONE, None)).fill_null("")
