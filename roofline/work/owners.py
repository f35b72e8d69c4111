"""Which operator owns each piece of device work.

The owner of a kernel is the innermost operator above its launch that has a cost model of its own.
A composite operator (aten::linear) costs what the operators inside it cost, so it owns only
kernels that it launches itself. Without any model the launching operator owns the kernel, at an
unknown cost; a kernel that is registered by its own name then is its own owner.

On a CPU an operator above others may work itself too. That work owns itself, at an unknown cost:
the operator's model counts what the operators below it do.
"""

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import Integers
from gpuprof.collectors.call_tree.op_subtrees import Booleans
from gpuprof.collectors.capture import Capture, once_a_capture
from gpuprof.roofline.cost_models import is_composite, is_modelled, is_modelled_kernel, is_view
from gpuprof.roofline.kernel_names.element_types import fast_algorithm
from gpuprof.roofline.kernel_names.product_arithmetic import arithmetic_of_rows, telling_row
from gpuprof.roofline.work.attribution import of_operators, parent_rows, rows_of
from gpuprof.roofline.work.op_names import ops_named
from gpuprof.roofline.work.op_tree import op_phases

_ARGUMENTS = (
    *("name", "input_dims", "input_types", "input_strides", "concrete_inputs"),
    "argument_names",
    "argument_accesses",
)
_OF_OPERATORS = (*_ARGUMENTS, "phase", "recompute")
# What the kernels of an operator tell; null for a kernel that owns itself.
_TOLD = ("kernel_names", "collective", "collective_dtype", "arithmetic")
# The arguments of the operator above, of those whose own record may be without them: torch 1.13
# records only one side of a collective, torch before 1.11 no size of what a gradient has.
_CALLER = ("caller", "caller_dims", "caller_types")
_TOLD_BY_CALLER = (
    "record_param_comms",
    "aten::cudnn_convolution_backward_input",
    "aten::cudnn_convolution_backward_weight",
    "aten::miopen_convolution_backward_input",
    "aten::miopen_convolution_backward_weight",
    "aten::miopen_depthwise_convolution_backward_input",
    "aten::miopen_depthwise_convolution_backward_weight",
)
# The launch of a kernel that owns itself, or of the one kernel that alone tells an operator's size.
_SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
# What of kernels tells of the operators that own them.
_TELLING = ("owner_id", "owner_op_id", "kind", "name", "collective", "dtype", *_SIZES)
_SIZED_BY_LAUNCH = ("aten::index",)
_LAUNCH = ("kernel", *_SIZES, "registers", "shared_memory")
# Calls that agree in these cost alike.
SIGNATURE = (*_ARGUMENTS, *_TOLD, *_CALLER, *_LAUNCH)
TENSOR_LIST = "TensorList"
# torch 1.8 records shapes without types.
_NO_TYPES = "[]"
# Kineto's names of these, within "Input type".
_FLOAT32 = '"float"'
_FLOAT16 = '"c10::(?:Half|BFloat16)"'
_TORCH = "aten::"
# pytorch aten/src/ATen/core/PythonFallbackKernel.cpp
_TAKEN_OVER_BY = ("PythonDispatchMode", "PythonSubclass")
# Between the names of kernels, which hold commas and spaces.
NAME_SEPARATOR = "\n"


def with_owners(kernels: pl.DataFrame, capture: Capture) -> pl.DataFrame:
    """`kernels` with owner_id: a call of an operator, below 0 the kernel itself, null no owner.

    owner_op_id is the operator's op_id. So is owner_id, but of work that a graph replayed: there
    each replay is a call of its own. Reads their columns op_id, name, kind, kernel_row and replay.
    """
    ops = capture.ops
    owners = owners_of(kernels["op_id"], capture).alias("owner_op_id")
    owned = _with_calls(kernels.with_columns(owners), ops)
    return _with_own_work(_owning_themselves(owned, ops), capture)


def _with_calls(kernels: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """`kernels` with owner_id, a number above all op_ids for each operator in each replay."""
    keys = ("owner_op_id", "replay")
    first_id = int(ops["op_id"].to_numpy().max(initial=-1)) + 1
    if kernels["replay"].null_count() == kernels.height:
        return kernels.with_columns(owner_id="owner_op_id")
    calls = kernels.select(keys).drop_nulls().unique(maintain_order=True)
    calls = calls.with_columns(call_id=pl.int_range(pl.len(), dtype=pl.Int64) + first_id)
    return (
        kernels.join(calls, on=keys, how="left", maintain_order="left")
        .with_columns(owner_id=pl.coalesce("call_id", "owner_op_id"))
        .drop("call_id")
    )


def owner_table(kernels: pl.DataFrame, capture: Capture) -> pl.DataFrame:
    """Each owner's signature columns, phase and recompute mark; a row for each owner_id.

    The kernels an owner launched belong to its signature only where its arguments do not tell
    the element type or where they do a convolution by a faster algorithm, so that other calls are
    not kept apart by what cuBLAS happened to choose. Of products of float32 operands the signature
    has the arithmetic that the kernels' names tell.
    """
    # Both have the operators in the same order.
    ops = pl.concat(
        [
            capture.ops.select("op_id", *_ARGUMENTS),
            op_phases(capture).select("phase", "recompute"),
        ],
        how="horizontal",
    )
    owned = kernels.select(_TELLING).filter(pl.col("owner_id") >= 0)
    owners = owned.select("owner_id", "owner_op_id").unique(
        "owner_id", keep="first", maintain_order=True
    )
    owners = pl.concat(
        [owners, of_operators(ops, owners["owner_op_id"], *_OF_OPERATORS)], how="horizontal"
    ).with_columns(
        pl.lit(None).alias(column) for column in ("kernel", "registers", "shared_memory")
    )
    collectives = pl.col("kind") == "collective"
    sized = pl.col("op_name").is_in(_SIZED_BY_LAUNCH) & (pl.len() == 1)
    fast = [name for name in owned["name"].unique() if fast_algorithm([name])]
    named_by_kernels = owners.filter(
        pl.col("input_types").str.contains(TENSOR_LIST, literal=True)
        | (pl.col("input_types") == _NO_TYPES)
        | pl.col("name").is_in(_SIZED_BY_LAUNCH)
        | pl.col("owner_id").is_in(
            owned.filter(collectives | pl.col("name").is_in(fast))["owner_id"].implode()
        )
    )
    told = (
        owned.filter(pl.col("kind") != "op")
        .join(named_by_kernels.select("owner_id", op_name="name"), on="owner_id", how="inner")
        .group_by("owner_id")
        .agg(
            *(
                pl.when(sized.first()).then(pl.col(column).first()).alias(column)
                for column in _SIZES
            ),
            pl.col("name").unique().sort().str.join(NAME_SEPARATOR).alias("kernel_names"),
            # Of several collectives under one operator nothing tells them apart.
            *(
                pl.col(column)
                .filter(collectives)
                .unique()
                .sort()
                .str.join(NAME_SEPARATOR)
                .alias(alias)
                for column, alias in (("collective", "collective"), ("dtype", "collective_dtype"))
            ),
        )
    )
    owners = (
        owners.join(told, on="owner_id", how="left", maintain_order="left")
        .join(
            _arithmetic_of_products(owned, owners), on="owner_id", how="left", maintain_order="left"
        )
        .join(_callers(capture.ops), on="owner_id", how="left", maintain_order="left")
    )
    own = (
        kernels.filter(pl.col("owner_id") < 0)
        # An operator's own work comes in several pieces.
        .unique("owner_id", keep="first", maintain_order=True)
        .with_columns(
            *(pl.lit(None, dtype=pl.String).alias(column) for column in (*_TOLD, *_CALLER)),
            kernel="name",
        )
        .select("owner_id", "op_id", *_TOLD, *_CALLER, *_LAUNCH)
    )
    own = pl.concat([own, of_operators(ops, own["op_id"], *_OF_OPERATORS)], how="horizontal")
    columns = ("owner_id", pl.col("phase").cast(pl.String), "recompute", *SIGNATURE)
    return pl.concat([owners.select(columns), own.select(columns)], how="vertical_relaxed")


def _callers(ops: pl.DataFrame) -> pl.DataFrame:
    """A row (owner_id and the caller's name and arguments) for each operator that needs them."""
    callers = ops.select("op_id", *("name", "input_dims", "input_types"))
    return (
        ops.select("name", owner_id="op_id", caller_id="parent_id")
        .filter(pl.col("name").is_in(_TOLD_BY_CALLER))
        .drop("name")
        .join(callers, left_on="caller_id", right_on="op_id", how="inner")
        .select("owner_id", caller="name", caller_dims="input_dims", caller_types="input_types")
    )


def _arithmetic_of_products(owned: pl.DataFrame, owners: pl.DataFrame) -> pl.DataFrame:
    """A row (owner_id, `ProductArithmetic` as JSON) for each owner whose kernels tell one.

    Of 16-bit operands it matters only where they ran without tensor cores.
    """
    rows = {name: row for name in owned["name"].unique() if (row := telling_row(name)) is not None}
    if not rows:
        return pl.DataFrame(schema={"owner_id": owned.schema["owner_id"], "arithmetic": pl.String})
    takes_float32 = pl.col("input_types").str.contains(_FLOAT32, literal=True)
    takes_16_bits = pl.col("input_types").str.contains(_FLOAT16)
    takers = owners.filter(takes_float32 | takes_16_bits).select(
        "owner_id", float32=takes_float32.fill_null(False)
    )
    # A set of rows is a number with a bit for each.
    sets = (
        owned.filter(pl.col("name").is_in(list(rows)))
        .select(
            "owner_id",
            bit=pl.col("name").replace_strict(
                {name: 1 << row for name, row in rows.items()}, return_dtype=pl.Int64
            ),
        )
        .unique()
        .group_by("owner_id")
        .agg(pl.col("bit").sum().alias("rows"))
        .join(takers, on="owner_id")
    )
    told = {number: arithmetic_of_rows(_bits(number)) for number in sets["rows"].unique()}
    without_tensor_cores = [number for number, each in told.items() if each.tensor_cores is False]
    texts = {number: msgspec.json.encode(each).decode() for number, each in told.items()}
    return sets.filter(pl.col("float32") | pl.col("rows").is_in(without_tensor_cores)).select(
        "owner_id",
        pl.col("rows").replace_strict(texts, return_dtype=pl.String).alias("arithmetic"),
    )


def _bits(number: int) -> list[int]:
    return [bit for bit in range(number.bit_length()) if number >> bit & 1]


def _owning_themselves(kernels: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """`kernels`, those the owner of themselves that are registered and have no modelled operator.

    Their owner_id is negative, which no operator's is.
    """
    registered = [name for name in kernels["name"].unique() if is_modelled_kernel(name)]
    if not registered:
        return kernels
    modelled = [name for name in ops["name"].unique() if is_modelled(name) and not is_view(name)]
    owners = ops.filter(pl.col("name").is_in(modelled))["op_id"]
    own = (
        pl.col("name").is_in(registered)
        & (pl.col("kind") == "kernel")
        & ~pl.col("owner_op_id").is_in(owners.implode()).fill_null(False)
    )
    return kernels.with_columns(
        owner_id=pl.when(own).then(-1 - pl.col("kernel_row")).otherwise("owner_id")
    )


def _with_own_work(kernels: pl.DataFrame, capture: Capture) -> pl.DataFrame:
    """`kernels`, what an operator does beside those below it the owner of itself.

    All of one call has the owner_id of its first piece. What a program's own model counts stays its
    operator's. Operators of torch that are modelled, or known to leave all to those below them,
    only took their time: that is left out.
    """
    ops = capture.ops
    leaves = kernels.filter(pl.col("kind") == "op")["op_id"].unique()
    if leaves.is_empty() or ops.is_empty():
        return kernels
    above = _above(rows_of(ops, leaves), parent_rows(capture))
    own = (pl.col("kind") == "op") & pl.col("op_id").is_in(
        ops.filter(pl.Series(above))["op_id"].implode()
    )
    names = kernels["name"].unique()
    modelled = [name for name in names if is_modelled(name)]
    passing_on = [name for name in names if is_composite(name)]
    passing_on += [name for name in modelled if name.startswith(_TORCH)]
    return kernels.filter(~own | ~pl.col("name").is_in(passing_on)).with_columns(
        owner_id=pl.when(own & ~pl.col("name").is_in(modelled))
        .then(-1 - pl.col("kernel_row").min().over("op_id"))
        .otherwise("owner_id")
    )


def _above(rows: Integers, parents: Integers) -> Booleans:
    """Which operators stand above any of `rows`."""
    above = np.zeros(len(parents), np.bool_)
    current = parents[rows]
    while (current := np.unique(current[(current >= 0)])).size:
        # Higher up all is marked where this is.
        current = current[~above[current]]
        above[current] = True
        current = parents[current]
    return above


def owners_of(op_ids: pl.Series, capture: Capture) -> pl.Series:
    """For each launching operator of `op_ids` the op_id of its owner; null stays null."""
    ops = capture.ops
    if ops.is_empty():
        return pl.Series("owner_id", [None] * len(op_ids), dtype=pl.Int64)
    owns, owns_own = _owning(capture)
    parents = parent_rows(capture)
    launching = rows_of(ops, op_ids)
    current = np.where((launching >= 0) & owns_own[launching], -1, launching)
    while (climbing := (current >= 0) & ~owns[current]).any():
        current[climbing] = parents[current[climbing]]
    found = np.where(current >= 0, current, launching)
    return pl.select(
        pl.when(pl.Series(found >= 0)).then(pl.Series(ops["op_id"].to_numpy()[found]))
    ).to_series()


@once_a_capture
def _owning(capture: Capture) -> tuple[Booleans, Booleans]:
    """Which operators own what is launched in them, and which only what they launch themselves."""
    owns = ops_named(capture, lambda names: map(_is_terminal, names))
    owns_own = ops_named(
        capture, lambda names: (is_modelled(name) and is_composite(name) for name in names)
    )
    taken_over = ops_named(capture, lambda names: (name in _TAKEN_OVER_BY for name in names))
    # What a mode or a tensor subclass took over did not run itself, with the shapes that it shows.
    return owns & ~_above(np.flatnonzero(taken_over), parent_rows(capture)), owns_own


def _is_terminal(name: str) -> bool:
    """Whether an operator called `name` has a cost of its own, and what it calls has none."""
    return is_modelled(name) and not is_composite(name) and not is_view(name)
