"""Collectives that a host does itself, with gloo or MPI: no kernel of theirs was recorded.

torch's process groups put a range around each, "gloo:all_reduce", from its call to the end of its
work on whichever thread (pytorch torch/csrc/distributed/c10d/Work.cpp). What is sent stands on the
operator c10d::allreduce_ of the same call. Which group it is of, nothing says.
"""

import math
from typing import Final

import msgspec
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline import dtypes
from gpuprof.roofline.bus_bandwidth import find_collective

_RANGE: Final = r"^(?:gloo|mpi):(\w+)$"
_OPERATOR: Final = r"^c10d::(\w+?)_?$"


def host_collectives(capture: Capture) -> pl.DataFrame:
    """One row for each collective of a one-rank capture that its host did, in order of start.

    Columns collective, name, start_ns, end_ns, message_bytes and dtype, these two null where the
    operators of its kind are not as many as its ranges.
    """
    ranges = (
        capture.ranges.filter(pl.col("name").str.contains(_RANGE), pl.col("end_ns").is_not_null())
        .with_columns(collective=_common_name(pl.col("name").str.extract(_RANGE)))
        .sort("start_ns", maintain_order=True)
        .with_columns(nth=pl.int_range(pl.len()).over("collective"))
    )
    operators = (
        capture.ops.filter(pl.col("name").str.contains(_OPERATOR))
        .with_columns(collective=_common_name(pl.col("name").str.extract(_OPERATOR)))
        .sort("start_ns", maintain_order=True)
        .with_columns(nth=pl.int_range(pl.len()).over("collective"))
    )
    counts = (
        ranges.group_by("collective")
        .len()
        .join(operators.group_by("collective").len(), on=("collective", "len"))
    )
    sizes = [
        _message(dims, types)
        for dims, types in operators.select("input_dims", "input_types").iter_rows()
    ]
    told = operators.select("collective", "nth").with_columns(
        message_bytes=pl.Series([size for size, _ in sizes], dtype=pl.Int64),
        dtype=pl.Series([dtype for _, dtype in sizes], dtype=pl.String),
    )
    told = told.join(counts, on="collective", how="semi")
    return ranges.join(told, on=("collective", "nth"), how="left", maintain_order="left").select(
        "collective", "name", "start_ns", "end_ns", "message_bytes", "dtype"
    )


def _common_name(spelling: pl.Expr) -> pl.Expr:
    return spelling.map_elements(_name, return_dtype=pl.String)


def _name(spelling: str) -> str:
    found = find_collective(spelling)
    return spelling if found is None else found.name


def _message(dims: str | None, types: str | None) -> tuple[int | None, str | None]:
    """The bytes of the larger of a call's first two arguments, what goes in and what comes out.

    With the name of their element type; both None where the profiler did not record them.
    """
    if dims is None or types is None:
        return None, None
    try:
        sizes, kinds = msgspec.json.decode(dims)[:2], msgspec.json.decode(types)[:2]
    except msgspec.DecodeError:
        return None, None
    found = [_argument(size, kind) for size, kind in zip(sizes, kinds, strict=False)]
    known = [(size, dtype) for size, dtype in found if size]
    return max(known, default=(None, None))


def _argument(size: object, kind: str) -> tuple[int, str]:
    """The bytes of a tensor or a list of tensors; 0 for anything else, and where its type is."""
    if not isinstance(size, list) or not size:
        return 0, ""
    shapes = size if isinstance(size[0], list) else [size]
    elements = (
        dtypes.list_dtypes(kind, len(shapes))
        if dtypes.is_tensor_list(kind)
        else (dtypes.parse(kind),) * len(shapes)
    )
    if any(dtype is None for dtype in elements) or not all(map(_is_shape, shapes)):
        return 0, ""
    total = sum(
        dtype.bytes_for(math.prod(shape))
        for shape, dtype in zip(shapes, elements, strict=True)
        if dtype is not None
    )
    return total, elements[0].name if elements[0] is not None else ""


def _is_shape(shape: object) -> bool:
    return isinstance(shape, list) and all(isinstance(size, int) for size in shape)
