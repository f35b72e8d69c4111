"""Roofline points of user ranges: NVTX, record_function and gpuprof.region."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import NEVER, NONE, Integers
from gpuprof.collectors.call_tree.op_subtrees import Booleans
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.analysis import Bottleneck, RooflinePoint, Transfer
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.machine.roof_time import Traffic
from gpuprof.roofline.nested_json import nests_too_deep
from gpuprof.roofline.points.classify import Circumstances, WorkKey, WorkVerdict, classify
from gpuprof.roofline.points.points import (
    COPY_NAME,
    KEY,
    DeviceTime,
    Identity,
    Machine,
    largest_first,
    point,
    why_no_roof,
)
from gpuprof.roofline.points.total import UNKNOWN, Total, sum_known, times_calls
from gpuprof.roofline.points.transfers import OF_TRANSFERS, Links, against_its_link, transfers_by
from gpuprof.roofline.points.verdicts import verdict_of_several
from gpuprof.roofline.work.op_tree import RangeMembers
from gpuprof.roofline.work.work import Work

# The precision of FLOPs that a region declared, where nothing inside tells it. No ceiling has it.
_UNSPECIFIED = "unspecified"
_DECLARED = ("counts declared by the region",)


def range_points(
    capture: Capture,
    work: Work,
    members: Sequence[RangeMembers],
    machine: Machine,
    verdicts: Mapping[WorkKey, WorkVerdict],
) -> tuple[RooflinePoint, ...]:
    """One point for each range name: the device work inside its passes in the profiled steps.

    `members` is that work (`range_members`).

    Where every pass declared FLOPs or bytes (`gpuprof.region`), those stand; otherwise the counts
    are sums over the operators inside, and the class is that of the largest loss among them. Nested
    ranges each hold the work of the inner ones.
    """
    declared = capture.ranges.select("bytes", "flops", "flops_by_unit")
    numbered = _numbered(work)
    all_ns = int(numbered.durations_ns.sum())
    transfers = _transfers(work.kernels, members, machine.links)
    points = []
    for number, each in enumerate(members):
        passes = declared[each.passes]
        device_ns = int(numbered.durations_ns[each.kernels].sum())
        time = DeviceTime(passes.height, device_ns, all_ns, work.steps)
        total = _total(passes, numbered.calls(each.kernels), work)
        times = machine.times(total)
        if total.assumptions == _DECLARED:
            bottleneck = _of_declared(total, time, machine)
        else:
            times_ns = numbered.times_ns(each.kernels)
            bottleneck = verdict_of_several(times_ns, verdicts, steps=work.steps)
        identity = Identity("range", each.name, each.domain)
        found = point(identity, time, total, times, bottleneck)
        points.append(against_its_link(found, transfers.get((number,)), steps=work.steps))
    return largest_first(points)


@dataclass(frozen=True)
class _Numbered:
    """The kernels of a `Work` as numbers, for sums over some of them: ranges hold each other."""

    durations_ns: Integers
    # The kinds of the work in order, and which each kernel is of.
    kinds: tuple[WorkKey, ...]
    kind: Integers
    # What crosses a link is no work of this device's own units and memory.
    crosses: Booleans
    # The call that each kernel is of, and the signature of each call; `NONE` for no operator.
    call: Integers
    signature: Integers

    def times_ns(self, kernels: Integers) -> Iterator[tuple[WorkKey, int]]:
        """How long the work of each kind takes among `kernels`."""
        kinds = self.kind[kernels]
        # Exact: sums of integers far below 2**53.
        summed_ns = np.bincount(kinds, self.durations_ns[kernels], len(self.kinds))
        for number in np.flatnonzero(np.bincount(kinds, minlength=len(self.kinds))):
            yield self.kinds[number], int(summed_ns[number])

    def calls(self, kernels: Integers) -> Iterator[tuple[int, int]]:
        """The signatures of `kernels` in their order, each with its number of calls."""
        calls = self.call[kernels[~self.crosses[kernels]]]
        seen = np.zeros(len(self.signature), np.bool_)
        seen[calls] = True
        # `NONE` is in front.
        counts = np.bincount(self.signature[seen] - NONE)
        first = np.zeros(len(counts), np.int64)
        first[self.signature[calls[::-1]] - NONE] = np.arange(len(calls))[::-1]
        found = np.flatnonzero(counts)
        for number in found[np.argsort(first[found])]:
            yield int(number) + NONE, int(counts[number])


def _numbered(work: Work) -> _Numbered:
    kernels = work.kernels.with_columns(COPY_NAME)
    coded = kernels.select(KEY).with_columns(pl.col(pl.String).cast(pl.Categorical))
    kinds = coded.unique()
    names = kinds.with_columns(pl.col(pl.Categorical).cast(pl.String)).with_row_index("row")
    names = names.sort(KEY)
    places = np.argsort(names["row"].to_numpy(), kind="stable")
    kind = coded.join(
        kinds.with_columns(kind=pl.Series(places)),
        on=KEY,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )["kind"]
    # A call has one signature, and what is of no call has none.
    owners = kernels["owner_id"].fill_null(NEVER).to_numpy()
    _, call = np.unique(owners, return_inverse=True)
    signature = np.full(int(call.max(initial=NONE)) + 1, NONE, np.int64)
    signature[call] = kernels["signature"].cast(pl.Int64).fill_null(NONE).to_numpy()
    return _Numbered(
        kernels["duration_ns"].fill_null(0).to_numpy(),
        tuple(names.select(KEY).iter_rows()),
        kind.to_numpy(),
        kernels["transfer"].is_not_null().to_numpy(),
        call,
        signature,
    )


def _transfers(
    kernels: pl.DataFrame, members: Sequence[RangeMembers], links: Links
) -> dict[tuple[Any, ...], Transfer]:
    """By the position of a range in `members` what mostly crosses a link in it."""
    crosses = kernels["transfer"].is_not_null().to_numpy()
    held = [each.kernels[crosses[each.kernels]] for each in members]
    if not any(map(len, held)):
        return {}
    numbers = np.repeat(np.arange(len(held)), [len(each) for each in held])
    rows = kernels.select(OF_TRANSFERS)[np.concatenate(held)]
    return transfers_by(rows.with_columns(range=pl.Series(numbers)), ("range",), links)


def _of_declared(total: Total, time: DeviceTime, machine: Machine) -> Bottleneck:
    """The class of a region by the counts that its program declared."""
    times = machine.times(total)
    known = Circumstances(
        calls=time.calls,
        device_ns=time.device_ns,
        device_kind=machine.kind,
        bytes_moved=total.bytes_moved,
        l2_bytes=machine.l2_bytes,
        clock=machine.clock,
    )
    verdict = classify(times, known, why_no_roof(total, machine))
    return verdict.bottleneck(times, calls=time.calls, device_ns=time.device_ns, steps=time.steps)


def _total(passes: pl.DataFrame, calls: Iterable[tuple[int, int]], work: Work) -> Total:
    inside = sum_known(
        UNKNOWN if signature == NONE else times_calls(work.signatures[signature].cost, number)
        for signature, number in calls
    )
    flops, moved = _declared_flops(passes, inside), _declared(passes["bytes"])
    return Total(
        inside.flops if flops is None else flops,
        inside.bytes_read if moved is None else None,
        inside.bytes_written if moved is None else None,
        inside.assumptions if flops is None or moved is None else _DECLARED,
        inside.traffic if moved is None else (Traffic.of_calls(moved, 0, passes.height),),
        inside.undivided_bytes if moved is None else moved,
    )


def _declared_flops(passes: pl.DataFrame, inside: Total) -> tuple[Flops, ...] | None:
    by_unit = passes["flops_by_unit"]
    if by_unit.is_not_null().all():
        if any(map(nests_too_deep, by_unit)):
            return None
        try:
            declared = [msgspec.json.decode(text, type=tuple[Flops, ...]) for text in by_unit]
        except msgspec.MsgspecError:
            # Of another version, which declares otherwise.
            return None
        return sum_known(Total(flops, 0, 0) for flops in declared).flops
    count = _declared(passes["flops"])
    return None if count is None else (Flops("matmul", _precision(inside), count),)


def _declared(column: pl.Series) -> int | None:
    return int(column.sum()) if column.is_not_null().all() else None


def _precision(inside: Total) -> str:
    matmuls = [part for part in inside.flops or () if part.kind == "matmul"]
    return max(matmuls, key=lambda part: part.count).precision if matmuls else _UNSPECIFIED
