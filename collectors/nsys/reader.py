"""An Nsight Systems recording as a Capture.

Ranks: one file is rank 0. Where several processes did GPU work they become ranks 0, 1, ... in the
order of their process ids; rows of processes without GPU work are then left out.
"""

from pathlib import Path
from typing import Final

import polars as pl

from gpuprof._version import __version__
from gpuprof.collectors import schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.repeated_text import repeated_text_problem
from gpuprof.collectors.manifest import Manifest, ProcessInfo
from gpuprof.collectors.nsys import metadata
from gpuprof.collectors.nsys.activities import device_work, launches
from gpuprof.collectors.nsys.autograd_ranges import split_operators, with_parents
from gpuprof.collectors.nsys.completeness import missing
from gpuprof.collectors.nsys.database import MAGIC, opened
from gpuprof.collectors.nsys.export import REPORT_MAGIC, sqlite_file
from gpuprof.collectors.nsys.export_tables import Export
from gpuprof.collectors.nsys.parquet_folder import KNOWN_TABLES, ParquetFolder
from gpuprof.collectors.nsys.ranges import clock_marks, nvtx_ranges

# 2^61 ns is 73 years from the session's start: further away is damage, and below it no sum of a
# time and the Unix epoch overflows.
_LATEST_NS: Final = 2**61


# Tables of SQLite files of other profilers: what they are and what to do. ROCm/rocm-systems,
# projects/rocprofiler-sdk/source/share/rocprofiler-sdk-rocpd; Ascend/msprof-analyze, README.md.
_OTHER_RECORDINGS: Final = {
    "rocpd_": (
        "a recording of ROCm's profiler (rocpd), which is not read",
        "pass the trace of torch.profiler",
    ),
    "COMPUTE_TASK_INFO": (
        "a database of Ascend's profiler (msprof, torch_npu), which is not read",
        "view it with MindStudio Insight",
    ),
}


def recognises(start: bytes) -> bool:
    """Whether a file that begins with `start` is an SQLite database or a `.nsys-rep`."""
    return start.startswith((MAGIC, REPORT_MAGIC))


def read(path: Path) -> Capture:
    """Read an export (`.sqlite`, plain or gzip, or a folder of Parquet files) or a `.nsys-rep`.

    A `.nsys-rep` is read where `nsys` is found.

    Times are nanoseconds since the Unix epoch, or since the session's start where the export does
    not say when that was. Raises `CaptureError` where the file is neither, or is damaged.
    """
    if path.is_dir():
        return _capture(path, ParquetFolder(path))
    with sqlite_file(path) as file, opened(path, file) as export:
        return _capture(path, export)


def _capture(path: Path, export: Export) -> Capture:
    _refuse_foreign(path, export)
    strings = export.strings()
    clock = metadata.clock(export, clock_marks(export, strings))
    warnings: list[str] = []
    kernels = _timed(device_work(export, strings), "pieces of device work", clock, warnings)
    calls = _timed(launches(export, strings), "API calls", clock, warnings)
    marked = _timed(nvtx_ranges(export, strings), "NVTX ranges", clock, warnings, open_ends=True)
    operators, ranges = split_operators(marked)

    for frame in (kernels, calls, operators, ranges):
        problem = repeated_text_problem(frame, export.most_text_bytes)
        if problem:
            raise CaptureError(path, problem)

    ranks = _ranks(kernels)
    warnings += missing(kernels, calls, ranges)
    warnings += metadata.diagnostics(export, kernels["global_pid"].unique())
    processes = tuple(
        _process(export, kernels, rank, len(ranks) or 1, global_pid, tuple(warnings))
        for rank, global_pid in enumerate(ranks or [None])
    )
    return Capture(
        Manifest(
            tool_version=__version__,
            source="nsys",
            title=path.name.split(".")[0],
            created_ns=clock.started_ns or path.stat().st_mtime_ns,
            clock=clock.name,
            ranks=tuple(process.rank for process in processes),
        ),
        processes,
        kernels=_ranked("kernels", kernels, ranks),
        ops=_ranked("ops", with_parents(operators), ranks),
        launches=_ranked("launches", calls, ranks),
        ranges=_ranked("ranges", ranges, ranks),
    )


def _refuse_foreign(path: Path, export: Export) -> None:
    if not any(table.startswith(KNOWN_TABLES) for table in export.tables):
        for prefix, (name, remedy) in _OTHER_RECORDINGS.items():
            if any(table.startswith(prefix) for table in export.tables):
                raise CaptureError(path, name, remedy=remedy)
        raise CaptureError(
            path,
            "an SQLite file, but not of Nsight Systems",
            expected="tables such as CUPTI_ACTIVITY_KIND_KERNEL or NVTX_EVENTS",
            remedy="make one with `nsys export --type sqlite REPORT.nsys-rep`",
        )


def _timed(
    frame: pl.DataFrame,
    what: str,
    clock: metadata.SessionClock,
    warnings: list[str],
    *,
    open_ends: bool = False,
) -> pl.DataFrame:
    """The rows with possible times, on the capture's clock. With `open_ends` an end may be null."""
    start, end = pl.col("start_ns"), pl.col("end_ns")
    # Not the absolute value, which the least of int64 does not have.
    possible = start.is_between(-_LATEST_NS, _LATEST_NS, closed="none") & (
        ((end >= start) & (end < _LATEST_NS)) | (end.is_null() & pl.lit(open_ends))
    )
    kept = frame.filter(possible)
    if kept.height < frame.height:
        warnings.append(
            f"{frame.height - kept.height} {what} have impossible times and are left out"
        )
    # Rows of an export may come in any order, those of one time too.
    columns = ["start_ns", *(name for name in kept.columns if name != "start_ns")]
    return kept.with_columns(start + clock.offset_ns, end + clock.offset_ns).sort(columns)


def _ranks(kernels: pl.DataFrame) -> list[int]:
    """The processes that did GPU work, in the order of their operating-system ids."""
    return (
        kernels.select("process", "global_pid").drop_nulls().unique().sort("process", "global_pid")
    )["global_pid"].to_list()


def _ranked(table: str, frame: pl.DataFrame, ranks: list[int]) -> pl.DataFrame:
    """`frame` as the capture's `table`: with ranks, and sizes that do not fit its columns null."""
    if len(ranks) > 1:
        numbers = pl.DataFrame(
            {"global_pid": ranks, "rank": range(len(ranks))},
            schema={"global_pid": pl.Int64, "rank": pl.Int32},
        )
        frame = frame.join(numbers, on="global_pid", maintain_order="left")
    else:
        frame = frame.with_columns(pl.lit(0, pl.Int32).alias("rank"))
    types = schema.TABLES[table]
    return schema.conform(
        table,
        frame.with_columns(
            pl.col(name).cast(types[name], strict=False) for name in frame.columns if name in types
        ),
    )


def _process(
    export: Export,
    kernels: pl.DataFrame,
    rank: int,
    world_size: int,
    global_pid: int | None,
    warnings: tuple[str, ...],
) -> ProcessInfo:
    mine = kernels.filter(pl.col("global_pid").eq_missing(global_pid))
    process = mine["process"].first() if mine.height else None
    assert process is None or isinstance(process, int)
    machine = metadata.fingerprint(export, process)
    busiest = mine["device"].drop_nulls().mode().min() if mine.height else None
    assert busiest is None or isinstance(busiest, int)
    indices = [device.index for device in machine.devices]
    return ProcessInfo(
        rank=rank,
        rank_from="order",
        world_size=world_size,
        process=process,
        command=metadata.command(export),
        fingerprint=machine,
        device=indices.index(busiest) if busiest is not None and busiest in indices else 0,
        warnings=warnings if rank == 0 else (),
    )
