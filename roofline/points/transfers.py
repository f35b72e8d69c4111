"""Communication and copies against the link that they use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import polars as pl

from gpuprof.collectors.link_calibration import LinkCalibration
from gpuprof.collectors.manifest import Fingerprint
from gpuprof.roofline.analysis import Bottleneck, RooflinePoint, Transfer
from gpuprof.roofline.classes import COMMUNICATION, OTHER_RANK
from gpuprof.roofline.durations import microseconds
from gpuprof.roofline.machine.ceilings import DEVICE_LINKS, HOST_LINKS, Ceiling, Roof
from gpuprof.roofline.machine.link_latency import COPY_NS, collective_latency_ns
from gpuprof.roofline.machine.measured_links import find_times, time_of
from gpuprof.roofline.points.grouping import grouped, one_of, one_text_of

# What tells apart the transfers of a step.
_TEXTS: Final = ("what", "host_memory", "group")
_NUMBERS: Final = ("group_size", "message_bytes")
TRANSFER_KEYS = (*_TEXTS, *_NUMBERS)
# What of the kernels of a `Work` transfers are made of.
OF_TRANSFERS: Final = (
    *("kind", "transfer", "bytes", "duration_ns", *TRANSFER_KEYS, "link_bytes"),
    *("exposed_ns", "rank_wait_ns", "exposed_wait_ns", "call_wait_ns", "mergeable"),
)


# Pinned memory is said to be faster where it takes less than this share of the time.
_FASTER: Final = 0.8


@dataclass(frozen=True)
class Links:
    """The links of the machine that the work ran on."""

    roof: Roof | None
    # All ranks of the job are known to be devices of one host.
    one_host: bool
    # Links as they were measured here, whichever the roof is.
    measured: tuple[Ceiling, ...] = ()
    # Collectives as they were measured here.
    collectives: LinkCalibration | None = None

    def latency_ns(self, kind: str, what: str, ranks: int | None) -> tuple[float | None, str]:
        """The least time of a transfer of any size, and what tells it; None where nothing does."""
        if kind == COMMUNICATION:
            if ranks is None or ranks < 2:
                return None, ""
            told_by = f"NCCL takes over {ranks} ranks by its own model"
            return collective_latency_ns(what, ranks), told_by
        if what not in HOST_LINKS:
            return None, ""
        for each in self.measured:
            if each.level in HOST_LINKS[what] and each.latency_ns is not None:
                return each.latency_ns, "a copy takes here as measured"
        return COPY_NS[what], "a copy takes on an H200"

    def of(self, kind: str, what: str) -> tuple[Ceiling | None, str]:
        """The ceiling of a transfer, and why there is none."""
        if self.roof is None:
            return None, "no ceiling is known for this device: run gpuprof calibrate on it"
        if kind == COMMUNICATION or what == "device to device":
            if kind == COMMUNICATION and not self.one_host:
                return None, "its ranks may be on several hosts, of whose network no rate is known"
            levels = DEVICE_LINKS
        elif what in HOST_LINKS:
            levels = HOST_LINKS[what]
        else:
            return None, "its name does not tell which link it uses"
        found = (self.roof.link_rate(level) for level in levels)
        ceiling = next((each for each in found if each is not None), None)
        return ceiling, "" if ceiling else "the rate of its link is not known here"

    def collective_ns(self, row: Mapping[str, Any]) -> int | None:
        """What all collectives of `row` take on the links of this host, as measured here."""
        size, ranks = row["message_bytes"], row["group_size"]
        if not self.one_host or size is None or ranks is None:
            return None
        times = find_times(self.collectives, row["what"] or "", ranks)
        each_ns = None if times is None else time_of(times, size)
        return None if each_ns is None else round(each_ns * row["calls"])

    def pinned_ns(self, what: str, row: Mapping[str, Any]) -> int | None:
        """What one of the pageable copies of `row` takes from pinned memory, measured here."""
        size = row["message_bytes"]
        if row["host_memory"] != "pageable" or size is None or what not in HOST_LINKS:
            return None
        for each in self.measured:
            if each.level in HOST_LINKS[what] and each.latency_ns is not None:
                return round(each.link_ns(size, 1))
        return None


def on_one_host(world_size: int, fingerprint: Fingerprint) -> bool:
    """Whether all ranks of a job are known to be devices of this process's host.

    As many ranks as it sees devices may be elsewhere only if several share a device.
    """
    return 1 < world_size <= len(fingerprint.devices)


def transfers(kernels: pl.DataFrame, keys: Sequence[str], links: Links) -> list[Transfer]:
    """One for each kind of transfer and value of `keys` among `kernels`, which are of a `Work`.

    Those that most of the step waits for come first.
    """
    found = [each for _, each in _totals(kernels, keys, links)]
    return sorted(found, key=lambda one: (-one.exposed_ns, -one.device_ns, one.what))


def transfers_by(
    kernels: pl.DataFrame, keys: Sequence[str], links: Links
) -> dict[tuple[Any, ...], Transfer]:
    """The transfers of each group of `kernels` with equal `keys`, of the kind that took longer."""
    largest: dict[tuple[Any, ...], Transfer] = {}
    for key, each in _totals(kernels, keys, links):
        if key not in largest or largest[key].device_ns < each.device_ns:
            largest[key] = each
    return largest


def _totals(
    kernels: pl.DataFrame, keys: Sequence[str], links: Links
) -> list[tuple[tuple[Any, ...], Transfer]]:
    read = list(dict.fromkeys((*keys, *OF_TRANSFERS)))
    # A few of all, which are quicker to take than the others are to leave.
    rows = kernels.select(read)[kernels["transfer"].is_not_null().arg_true()]
    if rows.is_empty():
        return []
    message = pl.coalesce("message_bytes", pl.when(pl.col("kind") == "memcpy").then("bytes"))
    groups = grouped(
        rows.with_columns(message_bytes=message),
        (*keys, "transfer"),
        pl.len().alias("calls"),
        pl.col("duration_ns").sum(),
        pl.col("exposed_ns").sum(),
        *(
            pl.when(pl.col(column).is_not_null().all()).then(pl.col(column).sum()).alias(column)
            for column in ("rank_wait_ns", "exposed_wait_ns", "call_wait_ns")
        ),
        pl.col("mergeable").sum(),
        *(one_text_of(column) for column in _TEXTS if column not in keys),
        *(one_of(column) for column in _NUMBERS if column not in keys),
        *(
            pl.when(pl.col(column).is_not_null().all())
            .then(pl.col(column).sum())
            .alias(f"all_{column}")
            for column in ("message_bytes", "link_bytes")
        ),
    )
    return [
        (tuple(row[key] for key in keys), _transfer(row, links))
        for row in groups.iter_rows(named=True)
    ]


def _transfer(row: dict[str, Any], links: Links) -> Transfer:
    kind, what = row["transfer"], row["what"] or ""
    moving_ns = row["duration_ns"] - (row["rank_wait_ns"] or 0)
    seconds = moving_ns / 1e9
    ceiling, reason = links.of(kind, what)
    link_bytes, total = row["all_link_bytes"], row["all_message_bytes"]
    least_ns, latency_ns = None, None
    if link_bytes is None:
        ceiling, reason = None, _why_no_bytes(kind, row)
    elif ceiling is not None:
        least_ns = ceiling.link_ns(link_bytes, row["calls"])
        latency_ns, told_by = links.latency_ns(kind, what, row["group_size"])
        if ceiling.latency_ns is not None or least_ns >= (latency_ns or 0.0) * row["calls"]:
            latency_ns = None
    if latency_ns is not None:
        # A share of the bandwidth would say nothing.
        ceiling, least_ns = None, None
        reason = (
            f"too small for the bandwidth of its link: {microseconds(latency_ns)} is the least "
            f"that {told_by}, of any size"
        )
    measured_ns = links.collective_ns(row) if kind == COMMUNICATION else None
    return Transfer(
        kind=kind,
        what=what,
        host_memory=row["host_memory"] or "",
        group=row["group"],
        group_size=row["group_size"],
        calls=row["calls"],
        device_ns=row["duration_ns"],
        exposed_ns=row["exposed_ns"],
        waiting_ns=row["rank_wait_ns"],
        exposed_waiting_ns=row["exposed_wait_ns"],
        call_waiting_ns=row["call_wait_ns"],
        mergeable_calls=row["mergeable"],
        message_bytes=row["message_bytes"],
        total_bytes=total,
        bytes_per_s=None if total is None or not seconds else total / seconds,
        bus_bytes_per_s=(
            None
            if link_bytes is None or kind != COMMUNICATION or not seconds
            else link_bytes / seconds
        ),
        roof_ns=None if least_ns is None else round(least_ns),
        roof="" if ceiling is None else ceiling.label,
        roof_fraction=None if least_ns is None or not seconds else least_ns / moving_ns,
        latency_ns=None if latency_ns is None else round(latency_ns),
        measured_ns=measured_ns,
        measured_fraction=None if measured_ns is None or not seconds else measured_ns / moving_ns,
        pinned_ns=links.pinned_ns(what, row),
        no_roof=reason,
    )


def _why_no_bytes(kind: str, row: dict[str, Any]) -> str:
    if kind != COMMUNICATION or row["all_message_bytes"] is None:
        return "how many bytes it moved was not recorded"
    if row["group_size"] is None:
        return "how many ranks took part was not recorded"
    return "what of the message crosses a link is not known for it"


def device_bytes(direction: str, copied: int) -> tuple[int, int]:
    """What a copy in `direction` reads and writes of this device's memory."""
    return (
        0 if direction == "host to device" else copied,
        0 if direction == "device to host" else copied,
    )


def takes_most(transfer: Transfer, device_ns: int) -> bool:
    """Whether it is more than half of `device_ns`."""
    return 2 * transfer.device_ns > device_ns


def against_its_link(
    point: RooflinePoint, transfer: Transfer | None, *, steps: int
) -> RooflinePoint:
    """`point` with the roof, class and counts of what crosses a link in it.

    Only where that takes most of its time: the link binds it then, and the device's own ceilings
    say nothing of it. What an algorithm of communication reads and writes on its way is not known.
    A copy to or from the host reads or writes this device's memory once, whatever its operator's
    model counts.
    """
    if transfer is None or not takes_most(transfer, point.device_ns):
        return point
    whole = transfer.device_ns == point.device_ns
    read, written = point.bytes_read, point.bytes_written
    if transfer.kind == COMMUNICATION:
        read = written = None
    elif whole and transfer.total_bytes is not None:
        read, written = device_bytes(transfer.what, transfer.total_bytes)
    moved = None if read is None or written is None else read + written
    seconds, flops = point.device_ns / 1e9, point.total_flops
    roofed = whole and transfer.roof_ns is not None
    return msgspec.structs.replace(
        point,
        bytes_read=read,
        bytes_written=written,
        undivided_bytes=None,
        arithmetic_intensity=flops / moved if flops is not None and moved else None,
        bytes_per_s=moved / seconds if moved is not None and seconds else None,
        # A part of the time has a part of the roof, which says nothing of the whole.
        roof_ns=transfer.roof_ns if roofed else None,
        roof=transfer.roof if roofed else "",
        roof_fraction=_share(transfer.roof_ns, point.device_ns) if roofed else None,
        bottleneck=transfer_verdict(transfer, steps=steps),
        assumptions=(*point.assumptions, *assumptions(transfer)),
        transfer=transfer,
    )


def _share(roof_ns: int | None, device_ns: int) -> float | None:
    return None if roof_ns is None or device_ns <= 0 else roof_ns / device_ns


def transfer_verdict(transfer: Transfer, *, steps: int) -> Bottleneck:
    """What holds communication or a copy back: the part of it that nothing hides.

    The gain is that part: what a step would lose if other work hid all of it. Where most of it is
    waiting for other ranks, it is that waiting: what a step would lose if all came together. What
    calls wait that follow others directly is their price.
    """
    waiting_ns = (transfer.exposed_waiting_ns or 0) - (transfer.call_waiting_ns or 0)
    kind, lost_ns = transfer.kind, transfer.exposed_ns - waiting_ns
    if waiting_ns > lost_ns:
        kind, lost_ns = OTHER_RANK, waiting_ns
    parts = [_rate(transfer)]
    if transfer.device_ns and transfer.waiting_ns is not None:
        parts.append(f"{transfer.waiting_ns / transfer.device_ns:.0%} of its time waits for ranks")
    if transfer.device_ns:
        share = transfer.exposed_ns / transfer.device_ns
        parts.append(f"{share:.0%} of its time is exposed")
    if transfer.host_memory == "pageable" and transfer.pinned_ns is not None:
        pinned, pageable = (
            microseconds(ns) for ns in (transfer.pinned_ns, transfer.device_ns / transfer.calls)
        )
        if transfer.pinned_ns < _FASTER * transfer.device_ns / transfer.calls:
            parts.append(f"from pinned memory one takes about {pinned} here, not {pageable}")
        parts.append("with pinned memory the host need not wait")
    elif transfer.host_memory == "pageable":
        parts.append("with pinned memory it is faster and the host need not wait")
    return Bottleneck(kind, "; ".join(parts), round(lost_ns / steps))


def assumptions(transfer: Transfer) -> tuple[str, ...]:
    """What the verdict of `transfer_verdict` takes for granted."""
    hidden = "to gain is all of its exposed time, if other work of the step could run meanwhile"
    if transfer.kind != COMMUNICATION:
        return (hidden,)
    if transfer.waiting_ns is not None:
        return (
            "to gain is the larger of its exposed parts: waiting for other ranks, if they came "
            "together, or the transfer, if other work could run meanwhile",
            "the rank that came last waited for none: its time is the transfer's",
        )
    return (
        hidden,
        "its time includes waiting for other ranks, so its bandwidth is a lower bound",
    )


def _rate(transfer: Transfer) -> str:
    """ "all-reduce of 45.1 MB over 4 ranks: bus bandwidth 212 GB/s, 47.1% of NVLink"."""
    said = transfer.what or ("communication" if transfer.kind == COMMUNICATION else "copy")
    if transfer.host_memory:
        said += f" ({transfer.host_memory})"
    if transfer.message_bytes is not None:
        said += f" of {_bytes(transfer.message_bytes)}"
    if transfer.group_size is not None:
        said += f" over {transfer.group_size} ranks"
    here = _as_measured(transfer)
    if transfer.latency_ns is not None:
        each = microseconds(transfer.device_ns / transfer.calls)
        return f"{said}: {each} a call, {transfer.no_roof}{here}"
    rate, name = transfer.bus_bytes_per_s, "bus bandwidth "
    if rate is None:
        rate, name = transfer.bytes_per_s, ""
    if rate is None:
        return f"{said}: {transfer.no_roof}"
    # Waiting for other ranks is in the time.
    bound = "at least " if transfer.kind == COMMUNICATION and transfer.waiting_ns is None else ""
    said += f": {name}{bound}{rate / 1e9:.3g} GB/s"
    if transfer.roof_fraction is None:
        return f"{said}; {transfer.no_roof}{here}"
    return f"{said}, {transfer.roof_fraction:.1%} of {transfer.roof}{here}"


def _as_measured(transfer: Transfer) -> str:
    """ ", 61% of what this link does at 16.8 MB"; "" where that was not measured."""
    if transfer.measured_fraction is None or transfer.message_bytes is None:
        return ""
    size = _bytes(transfer.message_bytes)
    return f", {transfer.measured_fraction:.0%} of what this link does at {size}"


def _bytes(count: int) -> str:
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
