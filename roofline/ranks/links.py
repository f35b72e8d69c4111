"""What collectives do over all ranks, by kind, number of ranks and message.

The shortest time of a collective over the ranks is that of its transfer
(`gpuprof.roofline.ranks.instances`), so bandwidths are of what the links did, not of waiting.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import polars as pl

from gpuprof.collectors.link_calibration import LinkCalibration
from gpuprof.roofline.bus_bandwidth import find_collective
from gpuprof.roofline.kernel_names.decode import decode
from gpuprof.roofline.link_figures import CollectiveGroup, CollectiveLine, LinkFigures
from gpuprof.roofline.machine.latency_fit import (
    ALGORITHMS,
    TimedMessage,
    algorithm_fit,
    line_fit,
)
from gpuprof.roofline.machine.measured_links import find_times, time_of
from gpuprof.roofline.nccl_figures import NcclFigures
from gpuprof.roofline.ranks.summary import RankSummary

_KEY: Final = ("what", "group_size", "hosts", "message_bytes")
_MOST_GROUPS: Final = 200


def link_figures(
    summaries: Sequence[RankSummary],
    found: pl.DataFrame,
    calibration: LinkCalibration | None = None,
    logged: NcclFigures | None = None,
    *,
    one_host: bool = False,
) -> LinkFigures | None:
    """The collectives of `found`, which are the instances of `summaries`.

    `calibration` is that of the devices of these ranks; of others it is not used. `logged` is what
    NCCL's log says of the same run; `one_host`: all ranks are known to be on one, whatever their
    summaries say. None where no collective was recorded by all its ranks.
    """
    if found.is_empty():
        return None
    rows = _with_hosts(found, summaries, one_host=one_host).with_columns(
        what=pl.col("collective").replace_strict(_names(found), default="", return_dtype=pl.String)
    )
    on_cpu = all(each.process.on_cpu for each in summaries)
    devices = {each.process.device_name for each in summaries}
    if calibration is not None and devices != {calibration.device}:
        calibration = None
    backend = "gloo" if on_cpu else "nccl"
    groups = sorted(
        (_as_logged(_group(row, calibration, backend), logged) for row in _totals(rows)),
        key=lambda one: (-one.calls * one.group_size * one.duration_ns, one.collective),
    )
    return LinkFigures(
        steps=found["step"].n_unique(),
        groups=tuple(groups[:_MOST_GROUPS]),
        left_out=max(0, len(groups) - _MOST_GROUPS),
        lines=tuple(_lines(groups)),
    )


def _names(found: pl.DataFrame) -> dict[str, str]:
    names = found["collective"].drop_nulls().unique()
    return {name: (row.name if (row := find_collective(name)) else name) for name in names}


def _with_hosts(
    found: pl.DataFrame, summaries: Sequence[RankSummary], *, one_host: bool
) -> pl.DataFrame:
    """`found` with how many hosts the ranks of each collective are on; null where unknown."""
    hosts = pl.DataFrame(
        {
            "rank": [each.rank for each in summaries],
            "host": ["" if one_host else each.process.host for each in summaries],
        },
        schema={"rank": pl.Int32, "host": pl.String},
    )
    known = pl.col("host").is_not_null().all().over("instance")
    return found.join(hosts, on="rank", how="left").with_columns(
        hosts=pl.when(known).then(pl.col("host").n_unique().over("instance").cast(pl.Int64))
    )


def _totals(rows: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """One row for each value of the key. Of transfers each collective counts once."""
    once = pl.col("rank") == pl.col("rank").min().over("instance")
    transfers = pl.col("transfer_ns").filter("once")
    yield from (
        rows.with_columns(once=once)
        .group_by(*_KEY, maintain_order=True)
        .agg(
            calls=pl.col("instance").n_unique(),
            transfer_ns=transfers.median(),
            low_ns=transfers.quantile(0.25),
            high_ns=transfers.quantile(0.75),
            duration_ns=pl.col("duration_ns").mean(),
            waiting_ns=pl.col("wait_ns").mean(),
            exposed_ns=pl.col("exposed_ns").mean(),
            names=pl.col("name").unique().sort(),
        )
        .iter_rows(named=True)
    )


def _group(
    row: dict[str, Any], calibration: LinkCalibration | None, backend: str
) -> CollectiveGroup:
    transfer_ns, size, ranks = row["transfer_ns"], row["message_bytes"], row["group_size"]
    kind = find_collective(row["what"])
    factor = None if kind is None else kind.bus_factor(ranks)
    rate = None if size is None or not transfer_ns else size / transfer_ns * 1e9
    measured_ns = None
    if size is not None and row["hosts"] is not None:
        times = find_times(calibration, row["what"], ranks, hosts=row["hosts"], backend=backend)
        measured_ns = None if times is None else time_of(times, size)
    algorithm, compiled_for = _told_by_names(row["names"])
    return CollectiveGroup(
        collective=row["what"],
        group_size=ranks,
        hosts=row["hosts"],
        message_bytes=size,
        calls=row["calls"],
        transfer_ns=None if transfer_ns is None else round(transfer_ns),
        transfer_quartiles_ns=(
            None if transfer_ns is None else (round(row["low_ns"]), round(row["high_ns"]))
        ),
        bytes_per_s=rate,
        bus_bytes_per_s=None if rate is None or factor is None else rate * factor,
        duration_ns=round(row["duration_ns"]),
        waiting_ns=None if row["waiting_ns"] is None else round(row["waiting_ns"]),
        exposed_ns=round(row["exposed_ns"]),
        measured_ns=None if measured_ns is None else round(measured_ns),
        measured_fraction=(
            None if measured_ns is None or not transfer_ns else measured_ns / transfer_ns
        ),
        algorithm=algorithm,
        compiled_for=compiled_for,
    )


def _as_logged(one: CollectiveGroup, logged: NcclFigures | None) -> CollectiveGroup:
    """`one` with the algorithm that NCCL's log says it chose for its kind, size and ranks."""
    if logged is None or one.message_bytes is None:
        return one
    told = {
        chosen.text
        for communicator in logged.communicators
        if communicator.size == one.group_size
        for chosen in communicator.chosen
        if (chosen.collective, chosen.message_bytes) == (one.collective, one.message_bytes)
    }
    if len(told) != 1:
        return one
    return msgspec.structs.replace(one, algorithm=told.pop())


def _told_by_names(names: Sequence[str | None]) -> tuple[str, str]:
    """The algorithm that all of `names` tell, and the one that they are compiled for.

    NCCL names a kernel after the function that it is specialised for, and may run another.
    """
    decoded = [decode(name) for name in names if name]
    algorithms, compiled = set(), set()
    for one in decoded:
        text = "" if one is None else " ".join(filter(None, (one.algorithm, one.protocol)))
        is_nccl = one is not None and one.library == "NCCL"
        algorithms.add("" if is_nccl else text)
        compiled.add(text if is_nccl else "")
    return (
        algorithms.pop() if len(algorithms) == 1 else "",
        compiled.pop() if len(compiled) == 1 else "",
    )


def _lines(groups: Sequence[CollectiveGroup]) -> Iterator[CollectiveLine]:
    """Of each collective and number of ranks, and of a hop where there are several numbers."""
    points: dict[str, list[TimedMessage]] = {}
    for one in groups:
        if one.message_bytes and one.transfer_ns:
            point = (one.message_bytes, one.group_size, float(one.transfer_ns))
            points.setdefault(one.collective, []).append(point)
    for collective, timed in sorted(points.items()):
        sizes = sorted({ranks for _, ranks, _ in timed})
        for size in sizes:
            fit = line_fit([(message, ns) for message, ranks, ns in timed if ranks == size])
            yield CollectiveLine(
                collective=collective,
                group_sizes=(size,),
                fit=None if isinstance(fit, str) else fit,
                reason=fit if isinstance(fit, str) else "",
            )
        for algorithm in ALGORITHMS if len(sizes) > 1 else ():
            fit = algorithm_fit(collective, algorithm, timed)
            if not isinstance(fit, str):
                yield CollectiveLine(
                    collective=collective,
                    group_sizes=tuple(sizes),
                    algorithm=algorithm,
                    fit=fit,
                )
