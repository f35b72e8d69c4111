"""What collectives take on the links here: tables by size, and the lines through them."""

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from gpuprof.collectors.link_calibration import CollectiveTimes, LinkCalibration
from gpuprof.reports import formatting
from gpuprof.reports.machine.calibration import binary_size
from gpuprof.roofline.bus_bandwidth import find_collective
from gpuprof.roofline.machine.latency_fit import (
    ALGORITHMS,
    Algorithm,
    LatencyFit,
    algorithm_fit,
    line_fit,
)


def link_tables(calibration: LinkCalibration) -> Iterator[Table]:
    """One table for each number of ranks and algorithm: time and bus bandwidth by size."""
    groups: dict[tuple[int, int, str], list[CollectiveTimes]] = {}
    for one in calibration.collectives:
        groups.setdefault((one.ranks, one.hosts, one.algorithm), []).append(one)
    for (ranks, hosts, algorithm), several in sorted(groups.items()):
        where = "" if hosts == 1 else f" on {hosts} hosts"
        how = f", {algorithm}" if algorithm else ""
        title = f"{ranks} ranks{where}, {several[0].backend}{how}: time and bus bandwidth"
        yield _table(title, several)


def _table(title: str, several: Sequence[CollectiveTimes]) -> Table:
    table = Table(title=Text(title, style="bold"), title_justify="left")
    table.add_column("Message", justify="right", no_wrap=True)
    for one in several:
        table.add_column(one.collective, justify="right", no_wrap=True)
    for row in zip(*(one.times for one in several), strict=True):
        cells = (
            f"{formatting.duration(ns)}\n{formatting.byte_rate(_bus_rate(one, size, ns))}"
            for one, (size, ns) in zip(several, row, strict=True)
        )
        table.add_row(binary_size(row[0][0]), *cells)
    spreads = (formatting.percent(one.spread) for one in several)
    table.add_row("its spread", *spreads)
    return table


def _bus_rate(one: CollectiveTimes, size: int, ns: float) -> float | None:
    row = find_collective(one.collective)
    factor = None if row is None else row.bus_factor(one.ranks)
    return None if factor is None or ns <= 0 else size * factor / ns * 1e9


def lines_table(calibration: LinkCalibration) -> Table:
    """alpha and beta of each collective, and of a hop and a link under each algorithm."""
    table = Table(
        title=Text("Lines through the times: alpha + beta x bytes", style="bold"),
        title_justify="left",
    )
    table.add_column("Collective", no_wrap=True)
    table.add_column("Ranks", justify="right", no_wrap=True)
    table.add_column("Of", no_wrap=True)
    for name in ("alpha", "1 / beta", "Sizes", "Typically off", "At most"):
        table.add_column(name, justify="right")
    for one in calibration.collectives:
        of = f"call, {one.algorithm}" if one.algorithm else "call"
        table.add_row(one.collective, str(one.ranks), of, *_cells(line_fit(one.times)))
    for name in dict.fromkeys(one.collective for one in calibration.collectives):
        for algorithm in ALGORITHMS:
            row = _hop_row(name, algorithm, calibration.collectives)
            if row:
                table.add_row(*row)
    return table


def _cells(fit: LatencyFit | str) -> tuple[str, ...]:
    if isinstance(fit, str):
        return (fit,)
    return (
        formatting.duration(fit.alpha_ns),
        formatting.byte_rate(fit.bytes_per_s),
        str(fit.sizes),
        formatting.percent(fit.typical_error),
        formatting.percent(fit.largest_error),
    )


def _hop_row(
    collective: str, algorithm: Algorithm, measured: Sequence[CollectiveTimes]
) -> tuple[str, ...]:
    """alpha of a hop and beta of a link under `algorithm`; () where they cannot be told.

    From the times of that algorithm where the library was told to use it. Where it chose itself
    they are those of a ring if it was one: the times do not tell.
    """
    alike = [one for one in measured if one.collective == collective and one.hosts == 1]
    told = [one for one in alike if one.algorithm == algorithm]
    chosen = [one for one in alike if not one.algorithm] if algorithm == "ring" else []
    of = told or chosen
    fit = algorithm_fit(
        collective, algorithm, [(size, one.ranks, ns) for one in of for size, ns in one.times]
    )
    if isinstance(fit, str):
        return ()
    ranks = ", ".join(str(number) for number in sorted({one.ranks for one in of}))
    return collective, ranks, f"{algorithm} hop{'' if told else '*'}", *_cells(fit)


def link_remarks(calibration: LinkCalibration) -> Iterator[str]:
    """How it was measured, and what was not."""
    repeats = {one.repeats for one in calibration.collectives}
    if any(one.backend == "gloo" for one in calibration.collectives):
        yield f"Times are the least of {max(repeats)} calls, by the host's clock."
    elif repeats:
        yield f"Times are medians of {max(repeats)} kernels, as the profiler times them."
    yield (
        "Of a call: alpha at any size, beta a byte of the message. Of a hop: what one step of the "
        "algorithm takes, and a byte on one link. * if the library used a ring, which times of "
        "messages do not tell."
    )
    if calibration.settings:
        yield f"With {', '.join(calibration.settings)}."
    if calibration.other_work is not None:
        yield f"Other programs used {formatting.percent(calibration.other_work)} of the CPU."
    for reason in calibration.left_out:
        yield f"Not measured: {reason}."
