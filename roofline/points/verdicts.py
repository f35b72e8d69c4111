"""One verdict for all device work of one kind, which each row that shows some of it repeats.

The kinds are operator signatures by phase, as in the rows of operators. Kernels, ranges and the
step are made of the same work, so none of them is classified again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import polars as pl

from gpuprof.roofline.analysis import Bottleneck, Transfer
from gpuprof.roofline.classes import ClassName, JudgedWork, bottleneck_class
from gpuprof.roofline.durations import duration
from gpuprof.roofline.points.classify import Circumstances, WorkKey, WorkVerdict, classify
from gpuprof.roofline.points.grid import Grid, Launches, grid_of
from gpuprof.roofline.points.grouping import grouped
from gpuprof.roofline.points.plugged_classes import with_plugged_class
from gpuprof.roofline.points.points import (
    BYTES_UNKNOWN,
    COPIED,
    COPY_NAME,
    KEY,
    REPLAYED,
    Machine,
    copied,
    why_no_roof,
)
from gpuprof.roofline.points.tensor_path import tensor_path
from gpuprof.roofline.points.tiles import tile_counts
from gpuprof.roofline.points.total import UNKNOWN, Total, times_calls
from gpuprof.roofline.points.transfers import takes_most, transfer_verdict, transfers_by
from gpuprof.roofline.work.work import Signature, Work

# Where one kernel does the work, a grid that its helpers do not fill says little of it.
_WORKS: Final = ("sole", "main", "shared")


def work_verdicts(work: Work, machine: Machine) -> Mapping[WorkKey, WorkVerdict]:
    """The verdict on each kind of the work, from all its launches."""
    kernels = work.kernels.with_columns(COPY_NAME)
    groups = grouped(
        kernels.select(*KEY, *("owner_id", "duration_ns", "kind", "bytes")),
        KEY,
        pl.col("owner_id").n_unique().alias("owners"),
        pl.len().alias("kernels"),
        pl.col("duration_ns").sum(),
        pl.col("kind").first(),
        *COPIED,
    )
    grids = _grids(kernels, work, machine)
    transfers = transfers_by(kernels, KEY, machine.links)
    verdicts = {}
    for row in groups.iter_rows(named=True):
        key = row["signature"], row["phase"], row["copy_name"]
        transfer = transfers.get(key)
        signature = None if row["signature"] is None else work.signatures[row["signature"]]
        # What no operator launched is work of many kinds, of which each row speaks for itself.
        of_one_kind = signature is not None or row["copy_name"]
        if transfer is not None and of_one_kind and takes_most(transfer, row["duration_ns"]):
            verdicts[key] = _over_its_link(transfer, row["duration_ns"])
        else:
            verdicts[key] = _verdict(row, signature, machine, grids.get(key))
    return verdicts


def _over_its_link(transfer: Transfer, device_ns: int) -> WorkVerdict:
    """The verdict on work that mostly communicates or copies over a link."""
    found = transfer_verdict(transfer, steps=1)
    share = (found.gain_ns or 0) / device_ns if device_ns else 0.0
    return WorkVerdict(found.kind, found.evidence, share, share)


def verdict_of_several(
    times_ns: Iterable[tuple[WorkKey, int]],
    verdicts: Mapping[WorkKey, WorkVerdict],
    *,
    steps: int,
) -> Bottleneck:
    """The largest loss of work of several kinds, such as that of a range.

    `times_ns` is how long the work of each kind takes, in the order of their keys. Where nothing is
    lost the class is that of most of its time.
    """
    lost_ns: Counter[ClassName] = Counter()
    gain_ns: Counter[ClassName] = Counter()
    spent_ns: Counter[ClassName] = Counter()
    for key, device_ns in times_ns:
        verdict = verdicts[key]
        spent_ns[verdict.kind] += device_ns
        if verdict.gain_fraction is None:
            lost_ns[verdict.kind] += device_ns
        else:
            lost_ns[verdict.kind] += round(device_ns * verdict.lost_fraction)
            gain_ns[verdict.kind] += round(device_ns * verdict.gain_fraction)
    kind = max(spent_ns, key=lambda name: (lost_ns[name], spent_ns[name]))
    gain = round(gain_ns[kind] / steps) if kind in gain_ns else None
    if not lost_ns[kind]:
        return Bottleneck(kind, "its work runs at its roof", gain)
    share = lost_ns[kind] / spent_ns.total()
    loss = bottleneck_class(kind).loss
    evidence = f"{share:.0%} of its device time ({duration(lost_ns[kind])}): {loss}"
    return Bottleneck(kind, evidence, gain)


def _grids(kernels: pl.DataFrame, work: Work, machine: Machine) -> dict[WorkKey, Grid]:
    """The grids of the kernels that do the work, where they leave anything idle."""
    blocks = pl.col("grid_x").cast(pl.Int64) * pl.col("grid_y") * pl.col("grid_z")
    launches: defaultdict[WorkKey, list[Launches]] = defaultdict(list)
    # Collectives need few blocks: a link binds them.
    doing = pl.col("role").is_in(_WORKS) & (pl.col("kind") != "collective")
    works = kernels.select(*KEY, "name", "duration_ns", blocks=blocks).filter(
        kernels.select(doing).to_series()
    )
    grouped = (
        # Numbers, which are quicker to group by than texts.
        works.with_columns(pl.col(pl.String).cast(pl.Categorical))
        .group_by(*KEY, "name", "blocks")
        .agg(pl.col("duration_ns").sum())
        .with_columns(pl.col(pl.Categorical).cast(pl.String))
    )
    rows = grouped.sort("name", "blocks").iter_rows()
    for signature, phase, copy_name, name, count, duration_ns in rows:
        cost = None if signature is None else work.signatures[signature].cost
        tiles = tile_counts(name, None if cost is None else cost.product)
        launches[signature, phase, copy_name].append(Launches(count, duration_ns, tiles))
    multiprocessors = None if machine.device is None else machine.device.multiprocessors
    found = {key: grid_of(each, multiprocessors) for key, each in launches.items()}
    return {key: grid for key, grid in found.items() if grid is not None}


def _verdict(
    row: dict[str, Any], signature: Signature | None, machine: Machine, grid: Grid | None
) -> WorkVerdict:
    calls = row["kernels"] if signature is None else row["owners"]
    total, reason = _total(row, signature, calls)
    path = None
    if signature is not None:
        path = tensor_path(signature.call, total.flops, total.all_traffic, machine.roof)
    known = Circumstances(
        calls=calls,
        device_ns=row["duration_ns"],
        launches=row["kernels"],
        device_kind=machine.kind,
        grid=grid,
        bytes_moved=total.bytes_moved,
        l2_bytes=machine.l2_bytes,
        clock=machine.clock,
        tensor_path=path,
    )
    why_unknown = reason or why_no_roof(total, machine)
    verdict = classify(machine.times(total), known, why_unknown)
    if verdict.gain_fraction is None or not verdict.lost_fraction:
        return verdict
    judged = JudgedWork(
        name=row["copy_name"] if signature is None else signature.name,
        call=None if signature is None else signature.call,
        kernels=() if signature is None or signature.call is None else signature.call.kernels,
        calls=calls,
        device_ns=row["duration_ns"],
        roof_fraction=1 - verdict.lost_fraction,
        flops=None if total.flops is None else sum(part.count for part in total.flops),
        bytes_moved=total.bytes_moved,
        kind=verdict.kind,
    )
    return with_plugged_class(verdict, judged)


def _total(row: dict[str, Any], signature: Signature | None, calls: int) -> tuple[Total, str]:
    """Counts of all the work, and why they are unknown."""
    if signature is not None:
        return times_calls(signature.cost, calls), signature.reason
    if not row["copy_name"]:
        return UNKNOWN, "no operator launched it"
    if row["copy_name"].startswith(REPLAYED):
        return UNKNOWN, "a CUDA graph replayed it, and the capture of the graph was not recorded"
    total = copied(row)
    return total, "" if total.flops is not None else BYTES_UNKNOWN
