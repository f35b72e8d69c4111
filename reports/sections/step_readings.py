"""Clock and power in the timed steps, as NVML sampled them."""

from collections.abc import Sequence

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Paragraph, folded_table
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.reading_figures import StepReading

_HEADS = (
    Column("Steps", "number"),
    Column("Mean", "number"),
    Column("SM clock", "number"),
    Column("Power", "number"),
    Column("Slowed down by"),
)
_COUNTED = (
    ("SMs", "sm_active", formatting.percent),
    ("Tensor cores", "tensor_active", formatting.percent),
    ("DRAM", "dram_active", formatting.percent),
    ("PCIe, sent", "pcie_tx_bytes_per_s", formatting.byte_rate),
    ("PCIe, received", "pcie_rx_bytes_per_s", formatting.byte_rate),
    ("NVLink, sent", "nvlink_tx_bytes_per_s", formatting.byte_rate),
    ("NVLink, received", "nvlink_rx_bytes_per_s", formatting.byte_rate),
)


def _body(analysis: Analysis) -> Sequence[Block]:
    readings = analysis.step_readings
    if not readings:
        return ()
    counted = [
        column
        for column in _COUNTED
        if any(getattr(each, column[1]) is not None for each in readings)
    ]
    rows = tuple(
        (*_cells(each), *(text(getattr(each, field)) for _, field, text in counted))
        for each in readings
    )
    heads = (*_HEADS, *(Column(head, "number") for head, _, _ in counted))
    note = (
        "Steps that follow each other with the same readings are one row. Readings are those of "
        "samples taken while the device did the steps, or of the one nearest to them. Power is the "
        "driver's average, on recent devices of about the last second."
    )
    if counted:
        note += " Activity and rates are those of a step that holds a window of the counters whole."
    return (*folded_table(heads, rows, "rows"), Paragraph(note, "note"))


def _cells(each: StepReading) -> tuple[str, ...]:
    steps = str(each.first_step)
    if each.last_step != each.first_step:
        steps = f"{each.first_step} to {each.last_step}"
    return (
        steps,
        formatting.step_duration(each.mean_ns),
        formatting.UNKNOWN if each.sm_clock_mhz is None else f"{each.sm_clock_mhz} MHz",
        formatting.UNKNOWN if each.power_watts is None else f"{each.power_watts:.0f} W",
        formatting.UNKNOWN if each.slowed_by is None else ", ".join(each.slowed_by) or "nothing",
    )


SECTION = Section(
    key="step-readings",
    title=titled("Clock and power of the timed steps"),
    fields=("step_readings",),
    body=_body,
)
