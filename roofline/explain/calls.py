"""The calls of an operator that a capture recorded: their arguments, time, cost and roof."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.inheriting import inherit
from gpuprof.collectors.call_tree.nesting import NONE, Integers
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import OpCall, parse_call
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.explain.choosing import own_name
from gpuprof.roofline.explain.explain import work_of
from gpuprof.roofline.machine.ceilings import Roof
from gpuprof.roofline.machine.roof_time import RoofTime, Traffic, roof_time
from gpuprof.roofline.work.attribution import attribute, parent_rows, rows_of
from gpuprof.roofline.work.work import Work

_RECORDED = ("name", "input_dims", "input_types", "input_strides", "concrete_inputs")


@dataclass(frozen=True, kw_only=True)
class AlikeCalls:
    """Calls of one operator with the same arguments, in the profiled steps."""

    name: str
    # The lists of shapes and types as a trace has them; "" where unknown.
    detail: str
    calls: int
    # Device work of all of them and of what they call.
    device_ns: int


@dataclass(frozen=True, kw_only=True)
class RepeatableCall:
    """What a capture holds of the calls in a group."""

    group: AlikeCalls
    # The arguments as they were recorded; None where their shapes were not.
    call: OpCall | None
    # Device work of one, in the median.
    median_ns: int
    # Of one call; None where a part of its work has no model.
    flops: tuple[Flops, ...] | None
    bytes_read: int | None
    bytes_written: int | None
    roof: RoofTime
    # Operators around it and itself, the outermost first, and where the program calls it.
    called_by: tuple[str, ...]
    module: str
    file: str | None
    line: int | None
    # The operators that do its device work, of the first call, and the types that it casts to.
    working: tuple[str, ...]
    casts: tuple[str, ...]
    # collective, memcpy, kernel, ...: the kinds of its device work; and whether it crosses a link.
    kinds: frozenset[str]
    over_link: bool


class RecordedCalls:
    """The operators of one rank with the device time of themselves and all below them."""

    def __init__(self, capture: Capture, analysis: Analysis) -> None:
        self._capture = attribute(capture.rank(analysis.rank))
        self._work: Work = work_of(self._capture)
        self._parents = parent_rows(self._capture)
        self._kernels = self._work.kernels.filter(pl.col("op_id").is_not_null())
        self._rows = rows_of(self._capture.ops, self._kernels["op_id"])
        self._times = _with_ancestors(self._rows, self._kernels["duration_ns"], self._parents)
        self._roof = _roof(analysis)

    def called(self, name: str) -> tuple[tuple[AlikeCalls, Integers], ...]:
        """The calls of operators called `name`, with their rows, those with most time first.

        Whole names go before parts of names, in any case; a name of a kernel stands for the
        operators that launched it. An operator that only calls others has their device work.
        """
        rows = self._named(name)
        found = (
            self._capture.ops[rows]
            .select(*_RECORDED, row=pl.Series(rows), time=pl.Series(self._times[rows]))
            .group_by(*_RECORDED, maintain_order=True)
            .agg("row", pl.col("time").sum())
            .sort("time", descending=True, maintain_order=True)
        )
        return tuple(
            (
                AlikeCalls(
                    name=row["name"],
                    detail=_detail(row["input_dims"], row["input_types"]),
                    calls=len(row["row"]),
                    device_ns=row["time"],
                ),
                np.array(row["row"]),
            )
            for row in found.iter_rows(named=True)
        )

    def _named(self, name: str) -> Integers:
        """The rows of operators that `name` means and that have device work."""
        working = np.flatnonzero(self._times)
        names = self._capture.ops["name"].to_numpy()[working]
        wanted = name.casefold()
        for equal in (
            lambda each: each == name,
            lambda each: own_name(each).casefold() == wanted,
            lambda each: wanted in each.casefold(),
        ):
            meant = [each for each in np.unique(names) if equal(each)]
            if meant:
                found: Integers = working[np.isin(names, meant)]
                return found
        launched = self._kernels["name"].str.to_lowercase().str.contains(wanted, literal=True)
        return np.unique(self._rows[launched.to_numpy()])

    def read(self, group: AlikeCalls, rows: Integers) -> RepeatableCall:
        """What is known of the calls in `group`, which are in `rows`."""
        ops, first = self._capture.ops, int(rows[0])
        row = ops.row(first, named=True)
        call = self._owning_call(row["op_id"])
        call = call or parse_call(*(row[column] for column in _RECORDED))
        below = self._below(first)
        work = self._kernels.filter(pl.Series(below[self._rows]))
        cost = self._cost(work, below, call)
        return RepeatableCall(
            group=group,
            call=call,
            median_ns=round(float(np.median(self._times[rows]))),
            flops=_sum_of_flops(cost),
            bytes_read=_sum(each.bytes_read for each in cost),
            bytes_written=_sum(each.bytes_written for each in cost),
            roof=self._roof_time(cost),
            called_by=self._called_by(first),
            module=row["module"] or "",
            file=row["file"],
            line=row["line"],
            working=self._working(work),
            casts=self._casts(row["op_id"]),
            kinds=frozenset(work["kind"].drop_nulls()),
            over_link=bool(work["over_link"].any()),
        )

    def _working(self, work: pl.DataFrame) -> tuple[str, ...]:
        owners = work["owner_op_id"].drop_nulls().unique(maintain_order=True)
        rows = rows_of(self._capture.ops, owners)
        return tuple(dict.fromkeys(self._capture.ops["name"][rows[rows != NONE]]))

    def _casts(self, op_id: int) -> tuple[str, ...]:
        """The types that calls of aten::to have, of those that the operator itself makes."""
        called = self._capture.ops.filter(
            (pl.col("parent_id") == op_id) & (pl.col("name") == "aten::to")
        )
        calls = (parse_call(*row) for row in called.select(_RECORDED).iter_rows())
        # aten::to.dtype(Tensor self, ScalarType dtype, ...)
        types = (call.dtype(1) for call in calls if call is not None)
        return tuple(dict.fromkeys(each.name for each in types if each is not None))

    def _owning_call(self, op_id: int) -> OpCall | None:
        """The call as it was understood where it owns work: with the type of lists."""
        own = self._kernels.filter(pl.col("owner_op_id") == op_id)["signature"].drop_nulls()
        return self._work.signatures[own[0]].call if len(own) else None

    def _below(self, row: int) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Whether each operator is that in `row` or below it."""
        marks = np.zeros(self._capture.ops.height, np.int8)
        marks[row] = 1
        return inherit(marks, self._parents) > 0

    def _cost(
        self,
        work: pl.DataFrame,
        below: "np.ndarray[tuple[int], np.dtype[np.bool_]]",
        call: OpCall | None,
    ) -> tuple[Cost, ...]:
        """The costs of all owners of `work`, the device work of one call; () where one is unknown.

        What an operator above owns is counted by the call's own model.
        """
        owners = work.unique("owner_id", maintain_order=True).select("owner_op_id", "signature")
        inside = below[rows_of(self._capture.ops, owners["owner_op_id"])]
        if owners.is_empty() or owners["signature"].null_count() or not inside.all():
            own = None if call is None else cost_of(call)
            return () if own is None else (own,)
        costs = [self._work.signatures[each].cost for each in owners["signature"]]
        return tuple(each for each in costs if each) if all(costs) else ()

    def _roof_time(self, costs: Sequence[Cost]) -> RoofTime:
        flops = _sum_of_flops(costs)
        known = [(each.bytes_read, each.bytes_written) for each in costs]
        traffic = [
            Traffic.of_calls(read, written, 1)
            for read, written in known
            if read is not None and written is not None
        ]
        complete = bool(known) and len(traffic) == len(known)
        return roof_time(flops, traffic if complete else None, self._roof)

    def _called_by(self, row: int) -> tuple[str, ...]:
        names = self._capture.ops["name"]
        chain = []
        while row != NONE:
            chain.append(names[row])
            row = int(self._parents[row])
        return tuple(chain[::-1])


def _detail(dims: str | None, types: str | None) -> str:
    return f"{dims} {types}" if dims and types else ""


def _with_ancestors(rows: Integers, durations: pl.Series, parents: Integers) -> Integers:
    """For each operator the durations of the work in `rows` that is its own or below it."""
    times = np.zeros(len(parents), np.int64)
    at, left = rows, durations.to_numpy()
    while len(at):
        np.add.at(times, at, left)
        above = parents[at]
        at, left = above[above != NONE], left[above != NONE]
    return times


def _roof(analysis: Analysis) -> Roof | None:
    source = analysis.roof_source
    if source is None:
        return None
    return Roof(tuple(each for each in analysis.ceilings if each.source == source), source)


def _sum_of_flops(costs: Sequence[Cost]) -> tuple[Flops, ...] | None:
    counts: dict[tuple[str, str], Flops] = {}
    for cost in costs:
        if cost.flops is None:
            return None
        for part in cost.flops:
            key = (part.kind, part.precision)
            known = counts[key].count if key in counts else 0
            counts[key] = Flops(part.kind, part.precision, known + part.count)
    return tuple(counts.values()) if costs else None


def _sum(figures: Iterable[int | None]) -> int | None:
    known = list(figures)
    if not known or None in known:
        return None
    return sum(each for each in known if each is not None)
