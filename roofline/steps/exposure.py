"""What of a step each device spends on computing, and on what computing does not hide."""

from collections.abc import Iterable
from typing import Final

import polars as pl

from gpuprof.roofline import copies
from gpuprof.roofline.intervals import clipped, union_ns
from gpuprof.roofline.step_figures import Exposed, ExposedCopies
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.work.work import Work

_COMMUNICATES: Final = pl.col("kind") == "collective"
# What has no device, on a CPU, is of one.
_NO_DEVICE: Final = -1


def computing(work: Work) -> Work:
    """The part of `work` that is neither communication nor a copy over a link."""
    return work.where(~_COMMUNICATES & ~pl.col("over_link"))


def on_device(work: Work, device: int | None) -> Work:
    """The part of `work` that ran on `device`."""
    return work.where(pl.col("device").eq_missing(pl.lit(device, pl.Int32)))


def device_uses(work: Work, stretch: Stretch) -> tuple[Exposed, ...]:
    """Each device's busy time in one step of `stretch`, by device.

    Computing hides copies and communication, copies hide communication. Of copies that overlap, the
    first in the order of direction and host memory hides the others.
    """
    kernels = work.kernels
    if stretch.window_ns is None:
        kernels = stretch.work_of(work).kernels
    labelled = kernels.select(
        "start_ns",
        "end_ns",
        "over_link",
        # From when on all ranks have come, where that is known.
        moves_ns=pl.col("start_ns") + pl.col("rank_wait_ns"),
        # The same where what calls that follow others wait is no waiting.
        called_ns=pl.col("start_ns") + pl.col("rank_wait_ns") - pl.col("call_wait_ns"),
        device=pl.col("device").fill_null(_NO_DEVICE),
        communicates=_COMMUNICATES,
        copy=pl.when("over_link").then("name"),
    )
    if stretch.window_ns is not None:
        start, end = clipped(
            labelled["start_ns"].to_numpy(), labelled["end_ns"].to_numpy(), stretch.window_ns
        )
        labelled = labelled.with_columns(
            start_ns=pl.Series(start),
            end_ns=pl.Series(end),
            moves_ns=pl.col("moves_ns").clip(*stretch.window_ns),
            called_ns=pl.col("called_ns").clip(*stretch.window_ns),
        )
    found = [_use(labelled, device, stretch.steps) for device in labelled["device"].unique().sort()]
    return tuple(use for use in found if use.busy_ns)


def critical(uses: Iterable[Exposed]) -> Exposed | None:
    """The device that works longest, which the step waits for; None without device work."""
    return max(uses, key=lambda use: use.busy_ns, default=None)


def _use(kernels: pl.DataFrame, device: int, steps: int) -> Exposed:
    own = kernels.filter(pl.col("device") == device)
    busy = own.filter(~pl.col("communicates") & ~pl.col("over_link"))
    computing_ns = covered_ns = _covered_ns(busy)
    exposed_copies: list[ExposedCopies] = []
    for (way, memory), names in _copy_kinds(own):
        busy = pl.concat([busy, own.filter(pl.col("copy").is_in(names))])
        reached_ns = _covered_ns(busy)
        exposed_copies.append(
            ExposedCopies(
                direction=way,
                host_memory=memory,
                exposed_ns=round((reached_ns - covered_ns) / steps),
            )
        )
        covered_ns = reached_ns
    busy_ns = _covered_ns(own)
    communication = own.filter("communicates")
    waits_ns, beside_calls_ns = (
        busy_ns - _covered_ns(pl.concat([busy, _from(communication, column)]))
        for column in ("moves_ns", "called_ns")
    )
    known = communication["moves_ns"].is_not_null().any()
    return Exposed(
        device=None if device == _NO_DEVICE else device,
        computing_ns=round(computing_ns / steps),
        communication_ns=round((busy_ns - covered_ns) / steps),
        rank_waits_ns=round(waits_ns / steps) if known else None,
        call_waits_ns=round((waits_ns - beside_calls_ns) / steps) if known else None,
        copies_ns=sum(part.exposed_ns for part in exposed_copies),
        copies=tuple(exposed_copies),
        other_devices_ns=round((_covered_ns(kernels) - busy_ns) / steps),
    )


def _from(kernels: pl.DataFrame, column: str) -> pl.DataFrame:
    """`kernels` that begin only at the times in `column`, where it has any."""
    return kernels.with_columns(start_ns=pl.coalesce(column, "start_ns"))


def _copy_kinds(kernels: pl.DataFrame) -> list[tuple[tuple[str, str], list[str]]]:
    """The names of copies by direction and host memory."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for name in kernels["copy"].drop_nulls().unique().sort():
        kinds.setdefault((copies.direction(name), copies.host_memory(name)), []).append(name)
    return sorted(kinds.items())


def _covered_ns(kernels: pl.DataFrame) -> int:
    return union_ns(kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy())
