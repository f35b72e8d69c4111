"""What the device's own counters say of the timed steps, beside the models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import (
    Block,
    Column,
    Fact,
    Facts,
    Paragraph,
    Table,
    folded_table,
)
from gpuprof.reports.computed.of_utilization import of_ofu
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.activity_figures import Activity, ActivityWindow, Reconciliation
from gpuprof.roofline.analysis import Analysis, Coverage
from gpuprof.roofline.measured.alarms import causes, differs

# Of the cycles: what is less on both sides is no line.
_NO_PRODUCTS: Final = 0.001
# Of device time: with less of it modelled a figure of the models says so.
_ALL: Final = 0.95
# Rates of links below this are the driver's own traffic.
_WORTH_A_LINE: Final = 1e9
_LINKS: Final = (
    ("PCIe, sent", "pcie_tx_bytes_per_s"),
    ("PCIe, received", "pcie_rx_bytes_per_s"),
    ("NVLink, sent", "nvlink_tx_bytes_per_s"),
    ("NVLink, received", "nvlink_rx_bytes_per_s"),
)
_HOW_TIMED: Final = (
    "Counters are refreshed every 0.1 s and are up to 0.2 s old when they are read: the steps of "
    "a window are all that it can hold anything of. Power is the driver's average, on recent "
    "devices of about the last second."
)


def _tensor(found: Activity, coverage: Coverage) -> Fact | None:
    if found.tensor_active is None:
        return None
    if max(found.tensor_active, found.modelled_tensor or 0.0) < _NO_PRODUCTS:
        return None
    notes = ["of the cycles"]
    if found.modelled_tensor is not None:
        at = "the datasheet's clock" if found.clock_mhz is None else f"{found.clock_mhz} MHz"
        needs = formatting.percent(found.modelled_tensor)
        full = found.modelled_tensor_full
        if full is not None and formatting.percent(full) != needs:
            needs += f" ({formatting.percent(full)} with what causal masks drop)"
        notes.append(
            f"the counted products need {needs} at {at}{_part(coverage.with_flops, 'FLOP')}"
        )
    return Fact("Tensor cores", formatting.percent(found.tensor_active), "; ".join(notes))


def _utilization(found: Activity) -> Fact | None:
    """OFU with what it is made of, and why it is not MFU."""
    reconciled = found.reconciled
    if reconciled is None or found.tensor_active is None:
        return None
    if max(reconciled.ofu, reconciled.mfu) < _NO_PRODUCTS:
        return None
    notes = [
        f"of the {reconciled.precision} peak: tensor cores active in "
        f"{formatting.percent(found.tensor_active)} of the cycles, at {reconciled.clock_mhz} MHz "
        f"of the peak's {reconciled.peak_clock_mhz}"
    ]
    if differs(reconciled):
        notes.append(f"{_points(reconciled.gap)} from MFU: {causes(reconciled)}")
    else:
        notes.append(f"within {_points(reconciled.uncertainty, sign='')} of MFU")
    return Fact(
        "OFU",
        formatting.percent(reconciled.ofu),
        "; ".join(notes),
        computed=of_ofu(reconciled, found.tensor_active),
    )


def _points(fraction: float, sign: str = "+") -> str:
    return f"{fraction * 100:{sign}.1f} points"


def _multiprocessors(found: Activity) -> Fact | None:
    if found.sm_active is None:
        return None
    return Fact("Multiprocessors", formatting.percent(found.sm_active), "had work, on average")


def _dram(found: Activity, coverage: Coverage) -> Fact | None:
    if found.dram_active is None:
        return None
    notes = ["of the peak bandwidth"]
    if found.dram_bytes is not None:
        modelled = ""
        if found.modelled_bytes is not None:
            modelled = f", {formatting.byte_count(found.modelled_bytes)} by the models"
            modelled += _part(coverage.with_bytes, "byte")
        notes.append(f"{formatting.byte_count(found.dram_bytes)} a step{modelled}")
    if found.dram_reason:
        notes.append(found.dram_reason)
    return Fact("DRAM", formatting.percent(found.dram_active), "; ".join(notes))


def _part(with_model: float | None, model: str) -> str:
    """That a figure of the models is of a part of the work; "" where it is of all or nearly."""
    if with_model is None or with_model >= _ALL:
        return ""
    return (
        f", without the {formatting.percent(1 - with_model)} of device time without a {model} model"
    )


def _links(found: Activity) -> list[Fact]:
    rates = [(label, getattr(found, column)) for label, column in _LINKS]
    return [
        Fact(label, formatting.quantity(rate, "B/s"), "counted by the device")
        for label, rate in rates
        if rate is not None and rate >= _WORTH_A_LINE
    ]


def _known(*facts: Fact | None) -> tuple[Fact, ...]:
    return tuple(fact for fact in facts if fact is not None)


def _table_of_differences(found: Reconciliation) -> Table:
    """From MFU to OFU, so that the rows add up."""
    rows = [
        ("MFU, causal attention in full", _points(found.mfu, sign="")),
        *((each.reason, _points(each.fraction)) for each in found.differences),
        ("not explained", _points(found.unexplained)),
        ("OFU", f"{_points(found.ofu, sign='')} ± {found.uncertainty * 100:.1f}"),
    ]
    return Table(
        (Column("From MFU to OFU"), Column("Of the peak", "number")),
        tuple(rows),
        frozenset({0, len(rows) - 1}),
    )


def _time_line(windows: Sequence[ActivityWindow]) -> tuple[Block, ...]:
    begun_ns = windows[0].start_ns
    columns = [
        column
        for column in _TIME_LINE
        if any(
            value is not None and value >= column.worth_showing
            for value in map(column.value, windows)
        )
    ]
    heads = tuple(Column(each.head, "number") for each in columns)
    rows = tuple(
        (
            formatting.duration(window.start_ns - begun_ns),
            formatting.duration(window.end_ns - window.start_ns),
            f"{window.first_step} to {window.last_step}"
            if window.first_step != window.last_step
            else str(window.first_step),
            *(_cell(each, window) for each in columns),
            formatting.UNKNOWN
            if window.slowed_by is None
            else ", ".join(window.slowed_by) or "nothing",
        )
        for window in windows
    )
    return folded_table(
        (
            Column("From", "number"),
            Column("Length", "number"),
            Column("Steps", "number"),
            *heads,
            Column("Slowed down by"),
        ),
        rows,
        "windows",
    )


@dataclass(frozen=True)
class _TimeLineColumn:
    """A column of the time line, left out where no window has such a value."""

    head: str
    field: str
    text: Callable[[float], str]
    worth_showing: float = 0.0

    def value(self, window: ActivityWindow) -> float | None:
        found: float | None = getattr(window, self.field)
        return found


def _cell(column: _TimeLineColumn, window: ActivityWindow) -> str:
    value = column.value(window)
    return formatting.UNKNOWN if value is None else column.text(value)


_TIME_LINE: Final = (
    _TimeLineColumn("SM clock", "sm_clock_mhz", lambda value: f"{value:.0f} MHz"),
    _TimeLineColumn("Power", "power_watts", lambda value: f"{value:.0f} W"),
    _TimeLineColumn("SMs", "sm_active", formatting.percent),
    _TimeLineColumn("Tensor cores", "tensor_active", formatting.percent),
    _TimeLineColumn("DRAM", "dram_active", formatting.percent),
    *(
        _TimeLineColumn(label, field, formatting.byte_rate, worth_showing=_WORTH_A_LINE)
        for label, field in _LINKS
    ),
)


def _windows(found: Activity) -> str:
    """How much of the timed steps the counters saw; or why they saw nothing."""
    if not found.windows:
        needed = "" if found.steps_needed is None else f": --timed {found.steps_needed}"
        return (
            "NVML's activity counters had no window that lies whole in the timed steps, which are "
            f"too short for that{needed}."
        )
    windows = formatting.counted(found.windows, "window")
    return (
        f"NVML's activity counters (GPM), of the whole device: {windows} of "
        f"{formatting.duration(found.window_ns)}, {formatting.percent(found.covered_fraction)} of "
        "the timed steps."
    )


def _summary(analysis: Analysis) -> Sequence[Block]:
    found = analysis.activity
    if found is None:
        return ()
    utilization = _utilization(found) or _tensor(found, analysis.coverage)
    facts = _known(utilization, _dram(found, analysis.coverage), *_links(found))
    return (Facts(facts),) if facts else ()


def _basis(analysis: Analysis) -> Sequence[Block]:
    found = analysis.activity
    return () if found is None else (Facts((Fact("Activity", "", _windows(found)),)),)


def _body(analysis: Analysis) -> Sequence[Block]:
    found = analysis.activity
    if found is None:
        return ()
    facts = _known(
        _multiprocessors(found),
        _tensor(found, analysis.coverage),
        _utilization(found),
        _dram(found, analysis.coverage),
        *_links(found),
    )
    blocks: list[Block] = [Paragraph(_windows(found))]
    if facts:
        blocks.append(Facts(facts))
    if found.reconciled is not None:
        blocks.append(_table_of_differences(found.reconciled))
    if found.time_line:
        blocks += _time_line(found.time_line)
        blocks.append(Paragraph(_HOW_TIMED, "note"))
    return tuple(blocks)


SECTION = Section(
    key="activity",
    title=titled("Activity counted by the device"),
    fields=("activity",),
    summary=_summary,
    basis=_basis,
    body=_body,
)
