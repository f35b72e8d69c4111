"""Rows of the page's tables: the largest points, and one row for all the others."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Fact, PointTable
from gpuprof.reports.figures import (
    OVER_PEAK,
    device_time_ns,
    flops_text,
    gain_sentence,
    is_unexplained,
    launched_by,
    moved_text,
    per_step,
    source_text,
    transfer_name,
)
from gpuprof.reports.fused_operators import fused_facts, lines_text
from gpuprof.reports.kernel_name_words import name_briefly, name_in_words
from gpuprof.reports.point_groups import GroupedPoint, grouped
from gpuprof.reports.shapes import readable_shapes, recorded_shapes
from gpuprof.roofline.analysis import RooflinePoint, Transfer
from gpuprof.roofline.classes import COMMUNICATION, bottleneck_class
from gpuprof.roofline.kernel_names.decode import KernelName, decode
from gpuprof.roofline.measured_figures import COUNTED
from gpuprof.roofline.reading_figures import WorkReading
from gpuprof.roofline.spread_figures import CallSpread

# Of kernels, operators and ranges each, all open to their figures: a page below 6 MB.
MOST_ROWS = 300
# Of a kernel's time: a reading of less of it says so.
_ALL = 0.95


@dataclass(frozen=True)
class Row:
    """One point. `id` is unique in the page; `figures` is everything known about it."""

    id: str
    title: str
    # Where it comes from, small: operator and phase of a kernel, phase and shapes of an operator.
    subtitle: str
    # The raw shapes behind those in the subtitle.
    hint: str
    point: RooflinePoint
    figures: tuple[Fact, ...]


@dataclass(frozen=True)
class OtherRows:
    """The points that have no row of their own, added up."""

    number: int
    calls: int
    device_ns: int
    device_fraction: float


@dataclass(frozen=True)
class PointRows:
    """A table's rows as a page shows them."""

    rows: tuple[Row, ...]
    others: OtherRows | None

    @property
    def largest_fraction(self) -> float:
        """The largest share of device time, which the bars are drawn against."""
        return max((row.point.device_fraction for row in self.rows), default=0.0) or 1.0

    @property
    def sampled(self) -> bool:
        """Whether any row knows its roof at the clock that ran."""
        readings = (row.point.reading for row in self.rows)
        return any(each is not None and each.roof_fraction is not None for each in readings)

    @property
    def number(self) -> int:
        """All points, those without a row of their own too."""
        return len(self.rows) + (self.others.number if self.others else 0)


def row_points(key: str, points: Sequence[RooflinePoint]) -> tuple[tuple[str, RooflinePoint], ...]:
    """The points that get a row of their own, each with its row's id."""
    return tuple((row_id, each.point) for row_id, each in _with_ids(key, grouped(points)))


def _with_ids(key: str, points: Sequence[GroupedPoint]) -> list[tuple[str, GroupedPoint]]:
    return [(f"{key}-{index}", each) for index, each in enumerate(points[:MOST_ROWS])]


def other_rows(rest: Sequence[GroupedPoint]) -> OtherRows | None:
    """`rest` added up; None where there is no rest."""
    if not rest:
        return None
    return OtherRows(
        number=len(rest),
        calls=sum(each.point.calls for each in rest),
        device_ns=sum(each.point.device_ns for each in rest),
        device_fraction=sum(each.point.device_fraction for each in rest),
    )


def make_rows(table: PointTable) -> PointRows:
    """The rows of `table`, sorted by device time; at most `MOST_ROWS` points get their own."""
    return PointRows(
        tuple(
            make_row(row_id, each, table.profiled_steps)
            for row_id, each in _with_ids(table.key, table.points)
        ),
        other_rows(table.points[MOST_ROWS:]),
    )


def make_row(row_id: str, each: GroupedPoint, profiled_steps: int) -> Row:
    """One point with its names made printable."""
    point = each.point
    shapes = readable_shapes(point.detail, point.op or point.name)
    decoded = _decoded(point)
    if decoded is not None:
        # Its launch, which stands for shapes otherwise, is among the figures.
        shapes = name_briefly(decoded)
    if each.members:
        shapes = f"{len(each.members)} operators or shapes"
    return Row(
        id=row_id,
        title=formatting.printable(formatting.short_name(point.name)),
        subtitle=formatting.printable(
            formatting.joined(
                (
                    moved_text(point.transfer),
                    launched_by(point),
                    point.phase,
                    point.module,
                    lines_text(point.source, point.fused),
                    shapes,
                )
            )
        ),
        hint=formatting.printable(recorded_shapes(point.detail)),
        point=point,
        figures=(*point_figures(point, profiled_steps), *_members(each, profiled_steps)),
    )


def _members(each: GroupedPoint, profiled_steps: int) -> list[Fact]:
    """A line for each point that a row adds up."""
    return [
        Fact(
            formatting.printable(member.op or member.name),
            formatting.printable(
                formatting.joined((member.phase, readable_shapes(member.op_detail, member.op)))
            ),
            f"{_calls(member, profiled_steps)}, "
            f"{formatting.duration(per_step(profiled_steps, member.device_ns))}",
        )
        for member in each.members
    ]


def _calls(point: RooflinePoint, profiled_steps: int) -> str:
    calls = per_step(profiled_steps, point.calls)
    return f"{formatting.count(calls)} call{'' if calls == 1 else 's'}"


def point_figures(point: RooflinePoint, profiled_steps: int) -> tuple[Fact, ...]:
    """All figures of a point: what it is, its time, work, rates, roof, verdict, assumptions.

    Each amount is of what `step_basis` says.
    """
    return (
        *_identity(point),
        *fused_facts(point),
        *_time(point, profiled_steps),
        *_work(point, profiled_steps),
        *_transfer(point.transfer, profiled_steps),
        *_roof(point, profiled_steps),
        *(
            Fact("Assumed" if index == 0 else "", formatting.printable(assumption))
            for index, assumption in enumerate(point.assumptions)
        ),
    )


def _identity(point: RooflinePoint) -> list[Fact]:
    shapes = point.op_detail if point.level == "kernel" else point.detail
    readable = readable_shapes(shapes, point.op or point.name)
    labels = (
        ("Name", point.name if formatting.short_name(point.name) != point.name else "", ""),
        ("Name says", _name_says(point), ""),
        ("Operator", launched_by(point), ""),
        ("Called as", point.caller if point.caller not in (point.name, point.op) else "", ""),
        ("Phase", point.phase, ""),
        ("Module", point.module, ""),
        ("Line", source_text(point.source), point.source.file if point.source else ""),
        ("Launch", point.detail if point.level == "kernel" and point.detail != shapes else "", ""),
        ("Shapes", readable, recorded_shapes(shapes) if shapes != readable else ""),
    )
    return [
        Fact(label, formatting.printable(value), recorded=formatting.printable(recorded))
        for label, value, recorded in labels
        if value
    ]


def _name_says(point: RooflinePoint) -> str:
    """What the name of a kernel tells: library, function, tile, precision, ..."""
    decoded = _decoded(point)
    return "" if decoded is None else name_in_words(decoded)


def _decoded(point: RooflinePoint) -> KernelName | None:
    return decode(point.name) if point.level == "kernel" and point.kind != "op" else None


def _time(point: RooflinePoint, profiled_steps: int) -> list[Fact]:
    calls = per_step(profiled_steps, point.calls)
    share = f"{formatting.percent(point.device_fraction)} of all"
    if point.calls and calls != 1:
        share = f"{formatting.duration(point.device_ns / point.calls)} a call, {share}"
    device_ns = device_time_ns(profiled_steps, point)
    return [
        Fact("Calls", formatting.count(calls)),
        Fact("Device time", formatting.duration(device_ns), "" if device_ns is None else share),
        *_spread(point.spread),
    ]


def _spread(spread: CallSpread | None) -> list[Fact]:
    """What the single calls of it took."""
    if spread is None:
        return []
    shortest, lower, upper, longest = map(
        formatting.duration,
        (spread.shortest_ns, spread.lower_quartile_ns, spread.upper_quartile_ns, spread.longest_ns),
    )
    note = f"of {formatting.count(spread.calls)} profiled calls; quartiles {lower} and {upper}"
    return [Fact("One call", f"{shortest} to {longest}", note)]


def _transfer(transfer: Transfer | None, profiled_steps: int) -> list[Fact]:
    """What it moves over a link, how fast, and what of its time is exposed."""
    if transfer is None:
        return []
    ranks = "" if transfer.group_size is None else f"over {transfer.group_size} ranks"
    group = "" if transfer.group is None else f"group {transfer.group}"
    bus = transfer.bus_bytes_per_s
    waiting = ""
    if transfer.waiting_ns is not None:
        wait = formatting.duration(per_step(profiled_steps, transfer.waiting_ns))
        waiting = f"waits {wait} for other ranks"
    return [
        Fact(
            "Message",
            formatting.byte_count(transfer.message_bytes),
            ", ".join(part for part in (transfer_name(transfer), ranks, group) if part),
        ),
        Fact(
            "Bandwidth",
            formatting.byte_rate(transfer.bytes_per_s),
            "" if bus is None else f"bus bandwidth {formatting.byte_rate(bus)}",
        ),
        Fact(
            "Exposed",
            formatting.duration(per_step(profiled_steps, transfer.exposed_ns)),
            waiting,
        ),
    ]


def _bytes_note(point: RooflinePoint) -> str:
    if point.total_bytes is None:
        return "no byte model"
    return "DRAM traffic" if COUNTED in point.assumptions else "compulsory traffic"


def _work(point: RooflinePoint, profiled_steps: int) -> list[Fact]:
    if point.transfer is not None and point.transfer.kind == COMMUNICATION:
        # What its algorithm computes and moves within the device is not known.
        return []
    read, written, both = (
        formatting.byte_count(None if total is None else per_step(profiled_steps, total))
        for total in (point.bytes_read, point.bytes_written, point.undivided_bytes)
    )
    return [
        Fact(
            "FLOPs",
            flops_text(point.flops, profiled_steps),
            "" if point.flops is not None else "no FLOP model",
        ),
        Fact(
            "Bytes",
            f"{read} read, {written} written"
            if point.undivided_bytes is None
            else f"{both} read and written",
            _bytes_note(point),
        ),
        Fact("Intensity", _with_unit(point.arithmetic_intensity)),
        Fact(
            "Rates",
            formatting.flops_rate(point.flops_per_s),
            formatting.byte_rate(point.bytes_per_s),
        ),
    ]


def _roof(point: RooflinePoint, profiled_steps: int) -> list[Fact]:
    facts = []
    if point.roof_fraction is not None:
        least = ""
        if point.roof_ns is not None:
            least = f"at least {formatting.duration(per_step(profiled_steps, point.roof_ns))}"
        roof = f"of {point.roof}" if point.roof else ""
        warning = OVER_PEAK if is_unexplained(point) else ""
        note = ", ".join(part for part in (roof, least, warning) if part)
        facts.append(Fact("Roof", formatting.percent(point.roof_fraction), note))
    facts += _reading(point.reading)
    verdict = point.bottleneck
    facts.append(
        Fact("Class", verdict.kind, formatting.printable(formatting.sentence(verdict.evidence)))
    )
    if gain := gain_sentence(verdict, in_steps=profiled_steps > 0):
        facts.append(Fact("Gain", gain, bottleneck_class(verdict.kind).gain))
    return facts


def _reading(reading: WorkReading | None) -> list[Fact]:
    """The clock and power while the kernel ran, and its share of the roof at that clock."""
    if reading is None:
        return []
    facts = []
    if reading.roof_fraction is not None:
        share = formatting.percent(reading.roof_fraction)
        facts.append(Fact("Roof at its clock", share, f"at {reading.sm_clock_mhz} MHz"))
    parts = [
        "" if reading.power_watts is None else f"{reading.power_watts:.0f} W",
        "" if not reading.slowed_by else f"slowed down by {', '.join(reading.slowed_by)}",
        ""
        if reading.covered_fraction > _ALL
        else f"sampled in {formatting.percent(reading.covered_fraction)} of its time",
    ]
    if reading.sm_clock_mhz is not None:
        note = ", ".join(part for part in parts if part)
        facts.append(Fact("SM clock", f"{reading.sm_clock_mhz} MHz", note))
    return facts


def _with_unit(flop_per_byte: float | None) -> str:
    return (
        formatting.UNKNOWN
        if flop_per_byte is None
        else (f"{formatting.intensity(flop_per_byte)} FLOP/byte")
    )
