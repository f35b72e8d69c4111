"""NVTX ranges of an export."""

from typing import Final

import polars as pl

from gpuprof.collectors.nsys.database import Database
from gpuprof.collectors.nsys.identifiers import (
    global_pid_of_thread,
    process_of,
    resolve,
    thread_of,
)

# Ids of ENUM_NSYS_EVENT_TYPE: NvtxPushPopRange, NvtxStartEndRange, NvtxDomainCreate.
_PUSH_POP: Final = 59
_START_END: Final = 60
_DOMAIN: Final = 75


def nvtx_ranges(database: Database, strings: pl.DataFrame) -> pl.DataFrame:
    """Push/pop and start/end ranges with the columns of `ranges`, `global_pid` in place of `rank`.

    The default domain is called nvtx, others by their own name. A range that was never closed has
    a null `end_ns`.
    """
    events = database.read(
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
    events = resolve(events, strings, "textId", "textById").select(
        global_pid_of_thread("globalTid").alias("global_pid"),
        pl.coalesce("text", "textById").alias("name"),
        pl.col("domainId").fill_null(0),
        process_of("globalTid").alias("process"),
        thread_of("globalTid").alias("thread"),
        pl.col("start").alias("start_ns"),
        pl.col("end").alias("end_ns"),
        "eventType",
    )
    domains = (
        events.filter(pl.col("eventType") == _DOMAIN)
        .select("global_pid", "domainId", pl.col("name").alias("domainName"))
        .unique(["global_pid", "domainId"], keep="first")
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
