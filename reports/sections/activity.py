"""What the device's own counters say of the timed steps, beside the models."""

from collections.abc import Sequence
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Fact, Facts, Paragraph
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.activity_figures import Activity
from gpuprof.roofline.analysis import Analysis, Coverage

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
    if found.tensor_reason:
        notes.append(found.tensor_reason)
    return Fact("Tensor cores", formatting.percent(found.tensor_active), "; ".join(notes))


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


def _facts(found: Activity, coverage: Coverage) -> list[Fact]:
    facts = (_tensor(found, coverage), _dram(found, coverage), *_links(found))
    return [fact for fact in facts if fact is not None]


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
    facts = () if found is None else tuple(_facts(found, analysis.coverage))
    return (Facts(facts),) if facts else ()


def _basis(analysis: Analysis) -> Sequence[Block]:
    found = analysis.activity
    return () if found is None else (Facts((Fact("Activity", "", _windows(found)),)),)


def _body(analysis: Analysis) -> Sequence[Block]:
    found = analysis.activity
    if found is None:
        return ()
    facts = tuple(_facts(found, analysis.coverage))
    return (Paragraph(_windows(found)), *((Facts(facts),) if facts else ()))


SECTION = Section(
    key="activity",
    title=titled("Activity counted by the device"),
    fields=("activity",),
    summary=_summary,
    basis=_basis,
    body=_body,
)
