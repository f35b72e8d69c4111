"""What a trace tells of its collectives beyond their kernels' names: group and message.

Since 2024 the profiler writes it on the kernel, copied from the operator `record_param_comms`
around the launch (pytorch torch/csrc/distributed/c10d/ParamCommsUtils.hpp). Where a kernel has
none of it, as where the profiler was built without that or a version lost it, the operator's own
is taken.
"""

from typing import Final

import polars as pl

from gpuprof.collectors.call_tree.nesting import NONE, enclosing
from gpuprof.collectors.collective_dtypes import element_bytes
from gpuprof.collectors.kineto.findings import Findings

# Of a group of collectives together, which the kernels of one operator share.
_OF_ALL: Final = ("collective", "dtype", "group", "group_size")
_CALL: Final = ("process", "correlation")
_OF_ONE: Final = ("elements_in", "elements_out")


def with_operators_metadata(
    kernels: pl.DataFrame, launches: pl.DataFrame, operators: pl.DataFrame
) -> pl.DataFrame:
    """`kernels`, the collectives among them that have no metadata with that of their operator.

    `operators` are the rows of `record_param_comms`. An operator that launched several collectives
    does not say which of them is how large.
    """
    columns = (*_OF_ALL, *_OF_ONE)
    rows = kernels.with_row_index("row")
    lacking = rows.filter(pl.all_horizontal(pl.col(columns).is_null()), kind="collective")
    if lacking.is_empty() or operators.is_empty():
        return kernels
    lacking = lacking.select("row", *_CALL)
    calls = (
        launches.select(*_CALL, "thread", launch_ns="start_ns")
        .join(lacking, on=_CALL, how="semi", maintain_order="left")
        .unique(_CALL, keep="first", maintain_order=True)
    )
    launched = lacking.join(calls, on=_CALL)
    operators = operators.sort("start_ns", "end_ns", descending=[False, True])
    launched = launched.with_columns(
        operator=pl.Series(enclosing(operators, launched, "launch_ns"), dtype=pl.Int64)
    ).filter(pl.col("operator") != NONE)
    told = launched.select("row", "operator", alone=pl.len().over("operator") == 1).join(
        operators.select(columns).with_row_index("operator").cast({"operator": pl.Int64}),
        on="operator",
    )
    told = told.select(
        "row", *_OF_ALL, *(pl.when("alone").then(column).alias(column) for column in _OF_ONE)
    )
    # Of these columns alone: the others would be copied.
    return kernels.with_columns(
        rows.select("row", *columns).update(told, on="row", how="left").select(columns)
    )


def with_message_bytes(kernels: pl.DataFrame, findings: Findings) -> pl.DataFrame:
    """`kernels` with `message_bytes`.

    A message is the full buffer: the larger of the elements put in and got out, times the size of
    an element (nccl-tests, doc/PERFORMANCE.md). Null where the trace does not say.
    """
    sizes = element_bytes()
    size = pl.col("dtype").replace_strict(sizes, default=None, return_dtype=pl.Int64)
    # Only a count that times an element's size still fits is a count of elements.
    elements = pl.max_horizontal("elements_in", "elements_out").pipe(
        lambda count: pl.when(count.is_between(0, 2**55)).then(count)
    )
    unknown = kernels.filter(pl.col("dtype").is_not_null() & size.is_null())["dtype"]
    findings.unknown_dtypes.update(unknown.to_list())
    return kernels.with_columns(message_bytes=elements * size)
