"""What functions take by size, on the terminal."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuprof.reports import formatting
from gpuprof.reports.figures import roof_percent
from gpuprof.roofline.bench.sizes import SizedTime, SizesReport

_COLUMNS = ("time", "±", "FLOP/s", "B/s", "roof")


def print_sizes(report: SizesReport, console: Console) -> None:
    """Print one table, then what went wrong, and how it was timed."""
    device = formatting.printable(report.device.name)
    console.print(
        Text(f"{formatting.printable(report.title)} on {device}, torch {report.fingerprint.torch}")
    )
    console.print(sizes_table(report))
    for line in notes(report):
        console.print(Text(line))


def sizes_table(report: SizesReport) -> Table:
    """A row for each function at each size; the others are compared with the first."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    several = len(report.functions) > 1
    table.add_column("size", justify="right", no_wrap=True)
    if several:
        table.add_column("function", no_wrap=True)
    columns = columns_of(report)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for size, members in groupby(report.times, key=lambda one: one.size):
        for index, one in enumerate(rows := list(members)):
            table.add_row(
                *(formatting.printable(size) if not index else "",),
                *((formatting.printable(one.function),) if several else ()),
                *cells(one, rows[0], columns),
            )
    return table


def columns_of(report: SizesReport) -> list[str]:
    """The columns of figures: of rates only those that are known."""
    known = {
        "FLOP/s": any(one.flops_per_s for one in report.times),
        "B/s": any(one.bytes_per_s for one in report.times),
        "roof": any(one.roof_fraction for one in report.times),
    }
    columns = [column for column in _COLUMNS if known.get(column, True)]
    return [*columns, f"of {report.functions[0]}"] if len(report.functions) > 1 else columns


def cells(one: SizedTime, first: SizedTime, columns: Sequence[str]) -> Iterator[str]:
    """The figures of one row; `first` is the first function at its size."""
    if one.error is not None:
        yield "failed"
        return
    for column in columns:
        if column == "time":
            yield formatting.duration(one.median_ns, digits=4)
        elif column == "±":
            yield _interval(one)
        elif column == "FLOP/s":
            yield formatting.flops_rate(one.flops_per_s)
        elif column == "B/s":
            yield formatting.byte_rate(one.bytes_per_s)
        elif column == "roof":
            yield roof_percent(one.roof_fraction)
        elif first.median_ns and one.median_ns:
            yield formatting.percent(one.median_ns / first.median_ns)
        else:
            yield formatting.UNKNOWN


def _interval(one: SizedTime) -> str:
    """How far the median's interval reaches, marked where it is not as narrow as it should be."""
    if not one.median_ns or one.lower_ns is None or one.upper_ns is None:
        return formatting.UNKNOWN
    reach = max(one.upper_ns - one.median_ns, one.median_ns - one.lower_ns)
    return f"{formatting.percent(reach / one.median_ns)}{'' if one.precise else '~'}"


def notes(report: SizesReport) -> Iterator[str]:
    """What is wrong with some of the times, and what all of them rest on, a sentence each."""
    for one in report.times:
        where = formatting.printable(f"{one.function} at {one.size}")
        if one.error is not None:
            yield f"{where}: {formatting.printable(one.error)}"
        elif one.host_bound:
            yield f"{where}: the host took longer to start it than the device to do it"
    yield from _uncounted(report)
    yield from map(formatting.sentence, report.warnings)
    timed = [one for one in report.times if one.median_ns is not None]
    if not timed:
        return
    method = report.method
    caches = (
        "caches as the call before left them"
        if method.flushed_bytes is None
        else f"before each call L2 is flushed ({formatting.byte_count(method.flushed_bytes)} "
        "written, then read), untimed"
    )
    calls = [len(one.samples_ns) for one in timed]
    turns = "; functions take turns" if len(report.functions) > 1 else ""
    yield f"Timed: {method.clock}, median of {min(calls)} to {max(calls)} calls{turns}; {caches}."
    cut_short = sum(not one.precise for one in timed)
    rest = f" ~: {cut_short} took all of {method.budget_s:g} s first." if cut_short else ""
    yield (
        f"±: the {method.confidence:.0%} interval of the median; calls are added until it is "
        f"within {method.precision:.1%}.{rest}"
    )
    yield from _costs(timed)
    clocks = [one.sm_clock_mhz for one in timed if one.sm_clock_mhz is not None]
    if clocks:
        reasons = sorted({reason for one in timed for reason in one.throttle_reasons})
        slowed = f"slowed down by: {', '.join(reasons)}" if reasons else "no slow-down seen"
        yield f"SM clock: {min(clocks)} to {max(clocks)} MHz; {slowed}."


def _uncounted(report: SizesReport) -> Iterator[str]:
    """Why functions have no rates."""
    for name in report.functions:
        reasons = {one.cost.reason for one in report.of(name) if one.error is None} - {""}
        for reason in sorted(reasons):
            yield f"{formatting.printable(name)}: {formatting.printable(reason)}"


_SOURCES: Final = {
    "given": "as given",
    "operators": "by the cost models of the operators in a profiled call, each of which reads its "
    "inputs and writes its outputs",
}


def _costs(timed: Sequence[SizedTime]) -> Iterator[str]:
    """Who says what calls cost."""
    flops = {one.cost.flops_from for one in timed} - {None}
    moved = {one.cost.bytes_from for one in timed} - {None}
    both = (("FLOPs and bytes", flops),) if flops == moved else (("FLOPs", flops), ("Bytes", moved))
    for what, sources in both:
        said = [words for source, words in _SOURCES.items() if source in sources]
        if said:
            yield f"{what}: {'; '.join(said)}."
    for source in sorted({one.cost.roof_source for one in timed} - {None}, key=str):
        ceilings = (
            "dense peaks of the datasheet" if source == "datasheet" else "rates measured here"
        )
        yield f"Roof: the time if each operator ran at its own, by {ceilings}."
