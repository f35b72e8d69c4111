"""What an export says about the recording itself: clock, machine, command, and what went wrong."""

import re
from dataclasses import dataclass
from typing import Final

import polars as pl

from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.collectors.masked_arguments import masked_arguments
from gpuprof.collectors.nsys.export_tables import Export
from gpuprof.collectors.nsys.identifiers import process_of

_WARNING_SEVERITIES: Final = (2, 3)
# nsys also warns about APIs that were never asked for (OpenGL, Vulkan, OS runtime).
_ABOUT_OUR_DATA: Final = re.compile(r"\b(CUDA|CUPTI|NVTX|GPU|buffer|dropped|lost)\b", re.IGNORECASE)
_MOST_DIAGNOSTICS: Final = 10
_MEGAHERTZ: Final = 1_000_000
# Marks that are closer than this were made one right after the other.
_GROUP_NS: Final = 1_000_000
# The only variables of the recorded machine that are read; the table also holds the environment.
_SYSTEM_NAMES: Final = ("NvDriverVersion", "OsDescription", "CpuDescription", "CpuCores")


@dataclass(frozen=True)
class SessionClock:
    """How an export's times become the capture's: add `offset_ns`."""

    offset_ns: int
    # The manifest's words for it.
    name: str
    # When the session started, on the Unix epoch.
    started_ns: int | None


def clock(export: Export, marks: pl.DataFrame) -> SessionClock:
    """The session's clock. Without a start time the export's own times are kept.

    Where gpuprof ran in the recorded program `marks` tell the time by its clock, which is that of
    torch's profiler. It counts then: launches must find the operators around them.
    """
    by_session = _clock_of_session(export)
    distances = _distances(marks)
    if distances.is_empty():
        return by_session
    # As an integer: the middle of floats of this size is off by a tenth of a microsecond.
    return SessionClock(distances[len(distances) // 2], "unix epoch", by_session.started_ns)


def _distances(marks: pl.DataFrame) -> pl.Series:
    """From the export's clock to ours, in order, once for each group of marks.

    nsys takes the time of a mark right before its call returns: the calls took 5 to 15 us, and the
    clock read next was 0.2 to 0.6 us later, each time (2022.4; 2025.3 agrees within 1 us). So it is
    the following mark that tells when one was made, and the least of a group's distances that
    nothing came between.
    """
    own = marks.sort("thread", "time_ns").with_columns(
        next_unix=pl.col("unix_ns").shift(-1).over("thread"),
        apart=pl.col("unix_ns").diff().over("thread"),
    )
    grouped = own.with_columns(
        group=(pl.col("apart").is_null() | (pl.col("apart").abs() >= _GROUP_NS)).cum_sum()
    )
    pairs = grouped.filter((pl.col("next_unix") - pl.col("unix_ns")).abs() < _GROUP_NS)
    least = pairs.group_by("group").agg(distance=(pl.col("next_unix") - pl.col("time_ns")).min())
    distances: pl.Series = least["distance"].sort()
    return distances


def _clock_of_session(export: Export) -> SessionClock:
    starts = export.read("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": int})["utcEpochNs"]
    started = starts.drop_nulls().min()
    if not isinstance(started, int) or not 0 < started < 2**62:
        return SessionClock(0, "session start", None)
    options = _settings(export, "META_DATA_EXPORT")
    if options.get("EXPORT_PARAM_TIME_NORMALIZE") == "true":
        # The export already moved its times to UTC.
        return SessionClock(0, "unix epoch", started)
    shift = options.get("EXPORT_PARAM_TIME_SHIFT", "0")
    moved = int(shift) if re.fullmatch(r"-?\d{1,18}", shift) else 0
    return SessionClock(started - moved, "unix epoch", started)


def command(export: Export) -> tuple[str, ...]:
    """The command line that nsys started, where it started one, without secrets."""
    settings = _settings(export, "META_DATA_CAPTURE")
    program = settings.get("PROCESS_0:COMMAND")
    if program is None:
        return ()
    arguments: list[str] = []
    while (value := settings.get(f"PROCESS_0:ARGUMENT_{len(arguments)}")) is not None:
        arguments.append(value)
    return masked_arguments((program, *arguments))


def fingerprint(export: Export, process: int | None) -> Fingerprint:
    """The machine, with the devices in the order in which `process` numbers them."""
    rows = export.read("TARGET_INFO_SYSTEM_ENV", {"name": str, "value": str})
    system = dict(rows.filter(pl.col("name").is_in(_SYSTEM_NAMES)).drop_nulls().iter_rows())
    cores = system.get("CpuCores", "")
    return Fingerprint(
        devices=_devices(export, process),
        # 0 where there is none.
        driver=system.get("NvDriverVersion", "0").removeprefix("0") or None,
        platform=system.get("OsDescription") or None,
        cpu=system.get("CpuDescription") or None,
        cpu_cores=int(cores) if re.fullmatch(r"[0-9]{1,6}", cores) else None,
    )


def diagnostics(export: Export, busy: pl.Series) -> tuple[str, ...]:
    """Warnings and errors that nsys left about CUDA and NVTX data, such as dropped events.

    `busy` are the processes with GPU work, where there are any: that another one collected no CUDA
    events is nothing to worry about.
    """
    rows = export.read("DIAGNOSTIC_EVENT", {"severity": int, "text": str, "globalPid": int})
    rows = rows.drop_nulls(["severity", "text"])
    # What is said of the session or the machine has no process.
    process = pl.col("globalPid")
    of_none = process.is_null() | (process < 0) | (process_of("globalPid") == 0)
    if busy.len():
        rows = rows.filter(of_none | process.is_in(busy.implode()))
    texts = rows.filter(pl.col("severity").is_in(_WARNING_SEVERITIES))["text"]
    ours = [text.strip() for text in texts.unique().sort() if _ABOUT_OUR_DATA.search(text)]
    warnings = [f"Nsight Systems: {text}" for text in ours[:_MOST_DIAGNOSTICS]]
    if len(ours) > _MOST_DIAGNOSTICS:
        warnings.append(f"Nsight Systems: {len(ours) - _MOST_DIAGNOSTICS} more warnings")
    return tuple(warnings)


def _devices(export: Export, process: int | None) -> tuple[Device, ...]:
    integers = (
        "id", "totalMemory", "clockRate", "smCount", "l2CacheSize",
        "threadsPerWarp", "computeMajor", "computeMinor",
    )  # fmt: skip
    rows = export.read(
        "TARGET_INFO_GPU", {**dict.fromkeys(integers, int), "name": str, "uuid": str}
    )
    # CUDA numbers devices per process (CUDA_VISIBLE_DEVICES); this table has that numbering.
    numbering = export.read("TARGET_INFO_CUDA_DEVICE", {"gpuId": int, "cudaId": int, "pid": int})
    mine = (
        numbering.filter(pl.col("pid").eq_missing(process))
        .drop_nulls()
        .sort("cudaId", "gpuId")
        .unique("cudaId", keep="first", maintain_order=True)
        .sort("cudaId")
    )
    if mine.height:
        rows = mine.rename({"gpuId": "id"}).join(rows, on="id", maintain_order="left")
    else:
        rows = rows.sort("id").with_columns(pl.col("id").alias("cudaId"))
    return tuple(
        Device(
            index=row["cudaId"],
            kind="cuda",
            name=row["name"],
            uuid=f"GPU-{row['uuid']}" if row["uuid"] else None,
            total_memory_bytes=row["totalMemory"] or None,
            multiprocessors=row["smCount"] or None,
            compute_capability=(
                f"{row['computeMajor']}.{row['computeMinor'] or 0}" if row["computeMajor"] else None
            ),
            l2_cache_bytes=row["l2CacheSize"] or None,
            warp_size=row["threadsPerWarp"] or None,
            maximum_sm_clock_mhz=(row["clockRate"] or 0) // _MEGAHERTZ or None,
        )
        for row in rows.iter_rows(named=True)
        if row["name"] and row["cudaId"] is not None
    )


def _settings(export: Export, table: str) -> dict[str, str]:
    rows = export.read(table, {"name": str, "value": str}).drop_nulls()
    # The last of a repeated name counts; nothing read here repeats.
    return dict(rows.iter_rows())
