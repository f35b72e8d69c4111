"""What a bench found, on the terminal."""

from collections.abc import Iterator
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuprof.reports import formatting
from gpuprof.reports.figures import roof_percent
from gpuprof.roofline.bench.rates import Roofs, library_time, rates, roofs_of
from gpuprof.roofline.bench.results import BenchReport, CaseResult
from gpuprof.roofline.machine.devices import find_spec
from gpuprof.roofline.machine.quiet import busy_sentences

# What the figures of each column need, so that the tables of a bench are in line.
_WIDTHS = {
    "time": 8,
    "±": 6,
    "FLOP/s": 12,
    "effective": 12,
    "executed": 12,
    "B/s": 9,
    "sustained": 12,
    "bus B/s": 9,
    "link": 6,
    "datasheet": 9,
    "measured": 8,
    "library": 7,
    "error": 9,
    "allowed": 9,
}
_OPTIONAL = ("B/s", "±", "sustained", "effective", "measured", "executed", "FLOP/s")


def print_bench(report: BenchReport, console: Console) -> None:
    """Print one table a problem, then what went wrong, what was left out, and how it was timed."""
    device = report.device
    name = "no device" if device is None else formatting.printable(device.name)
    on_ranks = f", {report.ranks} ranks" if report.ranks > 1 else ""
    console.print(Text(f"{name}{on_ranks}, torch {report.fingerprint.torch}", style="bold"))
    if device is not None and device.kind == "cpu":
        console.print(Text("No GPU is used: these are the versions that run on a CPU."))
    roofs = roofs_of(report)
    width = max((len(case.version) for case in report.cases), default=0)
    for _, cases in groupby(report.cases, key=lambda case: (case.family, case.size, case.dtype)):
        members = list(cases)
        console.print(problem_table(members, roofs, width, console.width))
        for case in members:
            if case.note:
                console.print(Text(f" {case.version}: {case.note}", style="dim"))
    for line in _after(report):
        console.print(Text(line))


def problem_table(
    cases: list[CaseResult], roofs: Roofs, name_width: int = 0, width: int = 120
) -> Table:
    """All versions of one problem. `name_width` keeps several tables in line.

    Where `width` is too small for all columns, those of `_OPTIONAL` are left out, first to last.
    """
    first = cases[0]
    name_width = max(name_width, *(len(case.version) for case in cases), len("version"))
    columns = _columns(cases, roofs)
    for optional in _OPTIONAL:
        if _needed(columns, name_width) > width and optional in columns:
            columns.remove(optional)
    title = f"{first.family} {first.size} {first.dtype}: {_work(first)}"
    table = Table(
        title=Text(title, style="bold"), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("version", min_width=name_width, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True, min_width=_WIDTHS[column])
    for case in cases:
        table.add_row(case.version, *_cells(case, cases, roofs, columns))
    return table


def _columns(cases: list[CaseResult], roofs: Roofs) -> list[str]:
    """The columns beside the version's name; where nothing was timed, those of a check."""
    if all(case.median_ns is None for case in cases):
        return ["error", "allowed"]
    first = cases[0]
    over_link = first.bus_bytes is not None
    columns = ["time", "±"]
    if any(case.executed_flops is not None for case in cases):
        columns += ["effective", "executed"]
    else:
        columns += ["FLOP/s"] if first.flops else []
    if any(case.sustained is not None for case in cases):
        columns.append("sustained")
    columns.append("bus B/s" if over_link else "B/s")
    if over_link:
        columns += ["link"] if roofs.link_rate else []
    else:
        columns += ["datasheet"] if roofs.datasheet else []
        columns += ["measured"] if roofs.measured else []
    return [*columns, "library"]


def _work(case: CaseResult) -> str:
    """What the problem costs by its definition."""
    count = sum(part.count for part in case.flops)
    work = [formatting.flops(count)] if count else []
    return ", ".join([*work, formatting.byte_count(case.bytes_moved)])


def _needed(columns: list[str], name_width: int) -> int:
    """Characters of a line with `columns` beside the name, two blanks before each, and margins."""
    return name_width + sum(_WIDTHS[column] + 2 for column in columns) + 2


def _cells(
    case: CaseResult, problem: list[CaseResult], roofs: Roofs, columns: list[str]
) -> Iterator[str]:
    reached = rates(case, roofs)
    if case.error is not None:
        yield "wrong" if case.relative_error is not None else "failed"
        return
    if reached is None:
        yield formatting.percent(case.relative_error)
        yield formatting.percent(case.tolerance)
        return
    library = library_time(case, problem)
    values = {
        "time": formatting.duration(case.median_ns, digits=4),
        "±": _half_width(case),
        "FLOP/s": formatting.flops_rate(reached.flops_per_s),
        # By the problem's definition; and what the version says it does for that.
        "effective": formatting.flops_rate(reached.flops_per_s),
        "executed": formatting.flops_rate(reached.executed_flops_per_s or reached.flops_per_s),
        "sustained": (
            formatting.byte_rate(reached.sustained_bytes_per_s)
            if reached.sustained_flops_per_s is None
            else formatting.flops_rate(reached.sustained_flops_per_s)
        ),
        "B/s": formatting.byte_rate(reached.bytes_per_s),
        "bus B/s": formatting.byte_rate(reached.bytes_per_s),
        "link": roof_percent(reached.of_link),
        "datasheet": roof_percent(reached.of_datasheet),
        "measured": roof_percent(reached.of_measured),
        "library": _of_library(case, library),
    }
    yield from (values[column] for column in columns)


def _half_width(case: CaseResult) -> str:
    """How far the interval of the median reaches; ~ marks one that the budget cut short."""
    if case.lower_ns is None or case.upper_ns is None or not case.median_ns:
        return formatting.UNKNOWN
    farthest = max(case.upper_ns - case.median_ns, case.median_ns - case.lower_ns)
    return formatting.percent(farthest / case.median_ns) + ("" if case.precise else "~")


def _of_library(case: CaseResult, library: CaseResult | None) -> str:
    if library is None or not library.median_ns or not case.median_ns:
        return formatting.UNKNOWN
    if library is case:
        return "library"
    return f"{library.median_ns / case.median_ns:.1%}"


def _after(report: BenchReport) -> Iterator[str]:
    for case in report.cases:
        if case.error is not None:
            yield f"{case.label}: {formatting.printable(case.error)}"
        elif case.host_bound:
            yield f"{case.label}: the host took longer to start it than the device to do it"
    left_out: dict[str, list[str]] = {}
    for skipped in report.skipped:
        reason = skipped.reason.removeprefix(f"{skipped.label} ")
        labels = left_out.setdefault(reason, [])
        if skipped.label not in labels:
            labels.append(skipped.label)
    for reason, labels in left_out.items():
        yield f"Left out, {formatting.printable(reason)}: {', '.join(labels)}"
    yield from map(formatting.sentence, report.warnings)
    yield from _conditions(report)


def _conditions(report: BenchReport) -> Iterator[str]:
    timed = [case for case in report.cases if case.median_ns is not None]
    errors = [c.relative_error for c in report.cases if c.error is None and c.relative_error]
    checked = sum(case.relative_error is not None for case in report.cases)
    if checked:
        worst = f", relative errors up to {max(errors):.1g}" if errors else ""
        seed = report.method.seed
        yield f"Checked: {checked} against float64 on random inputs, seed {seed}{worst}."
    if not timed:
        return
    method = report.method
    cache = (
        "caches as the call before left them"
        if method.flushed_bytes is None
        else f"before each call L2 is flushed ({formatting.byte_count(method.flushed_bytes)} "
        "written, then read), untimed"
    )
    calls = [len(case.samples_ns) for case in timed]
    yield f"Timed: {method.clock}, median of {min(calls)} to {max(calls)} calls; {cache}."
    if any(case.executed_flops is not None for case in timed):
        yield "Effective: FLOPs of the definition; executed: what a version does for them."
    cut_short = sum(not case.precise for case in timed)
    rest = f" ~: {cut_short} took all of {method.budget_s:g} s first." if cut_short else ""
    yield (
        f"±: the {method.confidence:.0%} interval of the median; calls are added until it is "
        f"within {method.precision:.1%}.{rest}"
    )
    clocks = [case.sm_clock_mhz for case in timed if case.sm_clock_mhz is not None]
    if clocks:
        reasons = sorted({reason for case in timed for reason in case.throttle_reasons})
        slowed = f"slowed down by: {', '.join(reasons)}" if reasons else "no slow-down seen"
        yield f"SM clock: {min(clocks)} to {max(clocks)} MHz; {slowed}."
    yield from _sustained(timed)
    if report.device is not None:
        spec = find_spec(report.device).spec
        if spec is not None:
            yield f"Datasheet: {spec.source}, dense."
    if report.calibration is not None:
        yield from map(formatting.sentence, busy_sentences(report.calibration))


def _sustained(timed: list[CaseResult]) -> Iterator[str]:
    """How calls back to back were timed, and how far the clock fell."""
    rows = [case.sustained for case in timed if case.sustained is not None]
    if not rows:
        return
    clocks = [row.sm_clock_mhz for row in rows if row.sm_clock_mhz is not None]
    reasons = sorted({reason for row in rows for reason in row.throttle_reasons})
    clock = f"; SM clock {min(clocks)} to {max(clocks)} MHz" if clocks else ""
    slowed = f", slowed down by: {', '.join(reasons)}" if reasons else ""
    yield (
        f"Sustained: {min(row.calls for row in rows)} to {max(row.calls for row in rows)} calls "
        f"back to back, caches as the call before left them{clock}{slowed}."
    )
