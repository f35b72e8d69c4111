"""NVTX ranges of an export, and the marks by which gpuprof tells it the time."""

import re
from typing import Final

import polars as pl

from gpuprof.collectors.nsys.export_tables import Export
from gpuprof.collectors.nsys.identifiers import (
    global_pid_of_thread,
    process_of,
    resolve,
    thread_of,
)
from gpuprof.collectors.nvtx_names import CLOCK

# Ids of ENUM_NSYS_EVENT_TYPE: NvtxMark, NvtxPushPopRange, NvtxStartEndRange, NvtxDomainCreate.
_MARK: Final = 34
_PUSH_POP: Final = 59
_START_END: Final = 60
_DOMAIN: Final = 75


def nvtx_ranges(export: Export, strings: pl.DataFrame) -> pl.DataFrame:
    """Push/pop and start/end ranges with the columns of `ranges`, `global_pid` in place of `rank`.

    The default domain is called nvtx, others by their own name. A range that was never closed has
    a null `end_ns`.
    """
    events = _events(export, strings)
    domains = (
        events.filter(pl.col("eventType") == _DOMAIN)
        .sort("start_ns", "name")
        .select("global_pid", "domainId", pl.col("name").alias("domainName"))
        .unique(["global_pid", "domainId"], keep="first", maintain_order=True)
    )
    ranges = events.filter(pl.col("eventType").is_in([_PUSH_POP, _START_END]))
    named = ranges.join(domains, on=["global_pid", "domainId"], how="left", maintain_order="left")
    return named.with_columns(
        pl.col("name").fill_null(""),
        pl.when(pl.col("domainId") == 0)
        .then(pl.lit("nvtx"))
        .otherwise(pl.coalesce("domainName", pl.format("nvtx domain {}", "domainId")))
        .alias("domain"),
        across_threads=pl.col("eventType") == _START_END,
    ).drop("domainId", "domainName", "eventType")


def clock_marks(export: Export, strings: pl.DataFrame) -> pl.DataFrame:
    """Marks in which gpuprof tells the time: columns thread, time_ns of the export, and unix_ns."""
    events = _events(export, strings).filter(pl.col("eventType") == _MARK)
    told = pl.col("name").str.extract(rf"^{re.escape(CLOCK)}(\d{{1,19}})$")
    return events.select(
        "thread", time_ns="start_ns", unix_ns=told.cast(pl.Int64, strict=False)
    ).drop_nulls()


def _events(export: Export, strings: pl.DataFrame) -> pl.DataFrame:
    events = export.read(
        "NVTX_EVENTS",
        {
            "start": int,
            "end": int,
            "eventType": int,
            "text": str,
            "textId": int,
            "globalTid": int,
            "domainId": int,
        },
    )
    return resolve(events, strings, "textId", "textById").select(
        global_pid_of_thread("globalTid").alias("global_pid"),
        pl.coalesce("text", "textById").alias("name"),
        pl.col("domainId").fill_null(0),
        process_of("globalTid").alias("process"),
        thread_of("globalTid").alias("thread"),
        pl.col("start").alias("start_ns"),
        pl.col("end").alias("end_ns"),
        "eventType",
    )
