"""What a device reached, as a table beside its datasheet, and the sentences below it."""

from collections.abc import Iterator
from typing import Final

from rich.table import Table
from rich.text import Text

from gpuprof.collectors.manifest import Calibration, MeasuredCeiling
from gpuprof.reports import formatting
from gpuprof.roofline.cost_models.cost import FlopKind
from gpuprof.roofline.machine.ceilings import Roof, datasheet_ceilings
from gpuprof.roofline.machine.devices import find_spec

# The order of the table's rows, by kind.
_ORDER: Final = ("compute", "memory", "link")


def ceiling_table(calibration: Calibration) -> Table:
    """The ceilings of one device: measured, with their spread, and the datasheet's beside."""
    device = calibration.device
    lookup = find_spec(device)
    roof = None if lookup.spec is None else Roof(datasheet_ceilings(lookup.spec), "datasheet")
    title = f"{formatting.printable(device.name)}, torch {calibration.torch}"
    if calibration.threads is not None:
        title += f", {calibration.threads} threads"
    table = Table(title=Text(title, style="bold"), title_justify="left", caption_justify="left")
    table.add_column("Ceiling", no_wrap=True)
    table.add_column("Measured", justify="right", no_wrap=True)
    table.add_column("Spread", justify="right", no_wrap=True)
    if lookup.spec is None:
        table.caption = Text(f"No datasheet figures: {lookup.reason}.")
    else:
        table.caption = Text(f"Datasheet: {lookup.spec.source}, dense.")
        table.add_column("Datasheet", justify="right", no_wrap=True)
    table.add_column("How")
    for measured in sorted(calibration.ceilings, key=lambda each: _ORDER.index(each.kind)):
        cells = [
            measured.name,
            _rate(measured.kind, measured.rate),
            formatting.percent(measured.spread),
        ]
        if roof is not None:
            promised = _datasheet_ceiling(roof, measured)
            cells.append(formatting.UNKNOWN if promised is None else _rate(*promised))
        table.add_row(*cells, Text(measured.method))
    return table


def copies_table(calibration: Calibration) -> Table | None:
    """What one copy takes by its size, for each direction and memory; None where not measured."""
    if not calibration.copies:
        return None
    table = Table(title=Text("One copy", style="bold"), title_justify="left")
    table.add_column("Size", justify="right", no_wrap=True)
    for copies in calibration.copies:
        table.add_column(f"{copies.direction}, {copies.host_memory}", justify="right", min_width=9)
    for row in zip(*(copies.times for copies in calibration.copies), strict=True):
        cells = (
            f"{formatting.duration(ns)}\n{formatting.byte_rate(size / ns * 1e9)}"
            for size, ns in row
        )
        table.add_row(binary_size(row[0][0]), *cells)
    return table


def binary_size(size: int) -> str:
    """ "4 KiB", "256 MiB"."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def remarks(calibration: Calibration) -> Iterator[str]:
    """What starting work costs, the state of the device, and what was not measured."""
    for cost in calibration.launch_costs:
        text = (
            f"Launch cost, {cost.what}: {formatting.duration(cost.host_ns)} of the host"
            f" at least, {formatting.duration(cost.host_median_ns)} in the median"
        )
        if cost.device_ns is not None:
            text += (
                f", {formatting.duration(cost.device_ns)} of the device"
                f" (spread {formatting.percent(cost.device_spread)})"
            )
        yield f"{text}."
    yield from _latencies(calibration)
    yield from _clocks(calibration)
    for sentence in calibration.conditions:
        yield formatting.sentence(sentence)
    if calibration.refused:
        names = ", ".join(calibration.refused)
        yield f"Refused, because too few repeats were undisturbed and agree: {names}."
    for reason in calibration.left_out:
        yield f"Not measured: {reason}."


def _latencies(calibration: Calibration) -> Iterator[str]:
    """How long a load takes, and how many bytes must be under way to reach the bandwidth."""
    levels: dict[str, MeasuredCeiling] = {}
    for each in calibration.ceilings:
        if each.kind == "memory" and each.level and each.latency_ns is not None:
            fastest = levels.setdefault(each.level, each)
            levels[each.level] = max(fastest, each, key=lambda one: one.rate)
    if not levels:
        return
    loads = ", ".join(
        f"{level} {formatting.duration(each.latency_ns or 0.0)}" for level, each in levels.items()
    )
    needed = ", ".join(
        f"{level} {formatting.byte_count(round(bytes_in_flight(each)))}"
        for level, each in levels.items()
    )
    yield (
        f"One load takes: {loads}. For the bandwidth so much must be under way at a time, on all "
        f"multiprocessors together (Little's law): {needed}."
    )


def bytes_in_flight(ceiling: MeasuredCeiling) -> float:
    """Bandwidth times latency (Little's law): bytes that must be under way to reach it."""
    return ceiling.rate * (ceiling.latency_ns or 0.0) / 1e9


def _clocks(calibration: Calibration) -> Iterator[str]:
    """The SM clock while all that was measured, and what was slowed down."""
    clocks = [each.sm_clock_mhz for each in calibration.ceilings if each.sm_clock_mhz is not None]
    if clocks:
        low, high = min(clocks), max(clocks)
        yield f"SM clock {high} MHz." if low == high else f"SM clock {low} to {high} MHz."
    for reason in sorted({reason for each in calibration.ceilings for reason in each.slowed_by}):
        names = [each.name for each in calibration.ceilings if reason in each.slowed_by]
        yield f"Lowered by {reason} in {', '.join(names)}."


def _datasheet_ceiling(roof: Roof, measured: MeasuredCeiling) -> tuple[str, float] | None:
    """Kind and rate of the datasheet's ceiling for what was measured."""
    if measured.precision is not None:
        kind: FlopKind = "vector" if measured.unit == "vector" else "matmul"
        promised = roof.compute_rate(kind, measured.precision)
    elif measured.kind == "link":
        # A datasheet has one rate for both ways to the host.
        level = measured.level or ""
        link = level.removesuffix(" pageable").removesuffix(" h2d").removesuffix(" d2h")
        promised = roof.link_rate(level) or roof.link_rate(link)
    else:
        promised = roof.memory_rate(measured.level or "")
    return None if promised is None else (promised.kind, promised.rate)


def _rate(kind: str, rate: float) -> str:
    return formatting.flops_rate(rate) if kind == "compute" else formatting.byte_rate(rate)
