"""Device work and API calls of an export.

Every frame made here has a `global_pid` column in place of `rank`: correlation ids are unique in a
process only, so that is what work and launches are joined by.
"""

from typing import Final

import polars as pl

from gpuprof.collectors.named_kernels import with_kinds
from gpuprof.collectors.nsys.export_tables import Export
from gpuprof.collectors.nsys.identifiers import (
    global_pid_of_thread,
    process_of,
    resolve,
    thread_of,
    zero_is_null,
)

# How the name of a graph that was recorded as one piece of work begins.
WHOLE_GRAPH: Final = "CUDA graph "

_ACTIVITY: Final = "CUPTI_ACTIVITY_KIND_"
_STREAM_WORK: Final[dict[str, type[int] | type[str]]] = {
    "start": int,
    "end": int,
    "deviceId": int,
    "contextId": int,
    "streamId": int,
    "correlationId": int,
    "globalPid": int,
    "graphNodeId": int,
}
# Directions as the PyTorch profiler abbreviates them, so that one copy has one name whichever tool
# recorded it. Ids and labels: ENUM_CUDA_MEMCPY_OPER and ENUM_CUDA_MEM_KIND of schema 3.20; older
# exports have no such tables but the same ids.
_DIRECTIONS: Final = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "unified HtoD",
    12: "unified DtoH",
    13: "unified DtoD",
}
_MEMORY_KINDS: Final = {
    0: "Pageable",
    1: "Pinned",
    2: "Device",
    3: "Array",
    4: "Managed",
    5: "Device Static",
    6: "Managed Static",
}


def device_work(export: Export, strings: pl.DataFrame) -> pl.DataFrame:
    """Kernels, copies, sets and graphs recorded as a whole, with the columns of `kernels`."""
    kernels = _kernels(export, strings)
    parts = [kernels, _copies(export), _sets(export), _whole_graphs(export, kernels)]
    return pl.concat(parts, how="diagonal")


def launches(export: Export, strings: pl.DataFrame) -> pl.DataFrame:
    """Runtime and driver calls, with the columns of `launches`.

    The version in an entry point's name (cudaLaunchKernel_v7000) is left out.
    """
    columns: dict[str, type[int] | type[str]] = {
        "start": int,
        "end": int,
        "globalTid": int,
        "correlationId": int,
        "nameId": int,
    }
    # Exports from before the two were merged have a table of driver calls.
    calls = pl.concat(export.read(f"{_ACTIVITY}{name}", columns) for name in ("RUNTIME", "DRIVER"))
    return resolve(calls, strings, "nameId", "name").select(
        global_pid_of_thread("globalTid").alias("global_pid"),
        pl.col("name").str.replace(r"_v\d+$", ""),
        process_of("globalTid").alias("process"),
        thread_of("globalTid").alias("thread"),
        pl.col("start").alias("start_ns"),
        pl.col("end").alias("end_ns"),
        zero_is_null("correlationId").alias("correlation"),
    )


def _kernels(export: Export, strings: pl.DataFrame) -> pl.DataFrame:
    names = ("demangledName", "mangledName", "shortName")
    integers = (
        "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
        "registersPerThread", "staticSharedMemory", "dynamicSharedMemory", *names,
    )  # fmt: skip
    frame = export.read(f"{_ACTIVITY}KERNEL", {**_STREAM_WORK, **dict.fromkeys(integers, int)})
    for column in names:
        frame = resolve(frame, strings, column, f"{column}Text")
    name = pl.coalesce(*(f"{column}Text" for column in names), pl.lit("(unnamed kernel)"))
    kernels = frame.select(
        name.alias("name"),
        pl.lit("kernel").alias("kind"),
        pl.lit(None, pl.String).alias("collective"),
        *_stream_columns(),
        *(pl.col(f"grid{axis}").alias(f"grid_{axis.lower()}") for axis in "XYZ"),
        *(pl.col(f"block{axis}").alias(f"block_{axis.lower()}") for axis in "XYZ"),
        pl.col("registersPerThread").alias("registers"),
        (pl.col("staticSharedMemory") + pl.col("dynamicSharedMemory")).alias("shared_memory"),
    )
    return with_kinds(kernels)


def _copies(export: Export) -> pl.DataFrame:
    frame = export.read(
        f"{_ACTIVITY}MEMCPY",
        {**_STREAM_WORK, "bytes": int, "copyKind": int, "srcKind": int, "dstKind": int},
    )
    memory = _MEMORY_KINDS | export.labels("ENUM_CUDA_MEM_KIND")
    return frame.select(
        pl.format(
            "Memcpy {} ({} -> {})",
            _label("copyKind", _DIRECTIONS),
            _label("srcKind", memory),
            _label("dstKind", memory),
        ).alias("name"),
        pl.lit("memcpy").alias("kind"),
        *_stream_columns(),
        pl.col("bytes"),
    )


def _sets(export: Export) -> pl.DataFrame:
    frame = export.read(f"{_ACTIVITY}MEMSET", {**_STREAM_WORK, "bytes": int, "memKind": int})
    memory = _MEMORY_KINDS | export.labels("ENUM_CUDA_MEM_KIND")
    return frame.select(
        pl.format("Memset ({})", _label("memKind", memory)).alias("name"),
        pl.lit("memset").alias("kind"),
        *_stream_columns(),
        pl.col("bytes"),
    )


def _whole_graphs(export: Export, kernels: pl.DataFrame) -> pl.DataFrame:
    """CUDA graphs that nsys recorded as one piece of work (--cuda-graph-trace=graph)."""
    columns = {**_STREAM_WORK, "graphId": int, "graphExecId": int}
    frame = export.read(f"{_ACTIVITY}GRAPH_TRACE", columns).select(
        pl.format(f"{WHOLE_GRAPH}{{}}", pl.coalesce("graphId", "graphExecId").fill_null(0)).alias(
            "name"
        ),
        pl.lit("kernel").alias("kind"),
        *_stream_columns(),
        zero_is_null("graphId").alias("whole_graph"),
    )
    # A launch whose nodes were recorded too would count twice.
    frame = frame.join(
        kernels.filter(pl.col("graph_id").is_not_null()),
        on=["global_pid", "correlation"],
        how="anti",
    )
    return frame.with_columns(pl.coalesce("whole_graph", "graph_id").alias("graph_id")).drop(
        "whole_graph"
    )


def _stream_columns() -> tuple[pl.Expr, ...]:
    return (
        pl.col("globalPid").alias("global_pid"),
        process_of("globalPid").alias("process"),
        pl.col("start").alias("start_ns"),
        pl.col("end").alias("end_ns"),
        pl.col("deviceId").alias("device"),
        pl.col("contextId").alias("context"),
        pl.col("streamId").alias("stream"),
        zero_is_null("correlationId").alias("correlation"),
        # CUPTI numbers a graph's nodes from (graph id << 32).
        (zero_is_null("graphNodeId") // 2**32).alias("graph_id"),
    )


def _label(column: str, labels: dict[int, str]) -> pl.Expr:
    return pl.col(column).replace_strict(
        list(labels), list(labels.values()), default="Unknown", return_dtype=pl.String
    )
