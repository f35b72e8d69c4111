"""Measured against modelled work in words: the rows that each report's table shows."""

from collections.abc import Iterable, Sequence

from gpuprof.collectors.counting import CountingPass
from gpuprof.reports import formatting
from gpuprof.reports.blocks import (
    Block,
    Fact,
    Facts,
    MeasuredCell,
    MeasuredRow,
    MeasuredTable,
    Paragraph,
    RowSubject,
)
from gpuprof.reports.sections.section import Section, titled
from gpuprof.reports.shapes import readable_shapes
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.measured_figures import (
    UNEXPLAINED,
    Measured,
    MeasuredFlops,
    MeasuredKernel,
    MeasuredWork,
)

HEAD = ("Tensor FLOPs", "Vector FLOPs", "DRAM read", "DRAM written", "L2", "L1", "FLOP/L2 byte")


def lead(measured: MeasuredWork) -> str:
    """What was counted, how, and what the ratios are of."""
    return (
        f"Nsight Compute counted {formatting.count(measured.launches)} of "
        f"{formatting.count(measured.launches_in_trace)} kernel launches, each run alone. Figures "
        "are of one call of the operator; x is counted over modelled. The model's bytes are "
        "compulsory traffic. Vector operations are counted by formula, so theirs agrees only "
        "roughly."
        f"{_chosen(measured.counting)}"
    )


def _chosen(counting: CountingPass | None) -> str:
    """How the launches were chosen, and what that took; "" where a report was given."""
    if counting is None:
        return ""
    left_out = (
        f" {formatting.counted(missing, 'launch was', 'launches were')} not counted: the time was "
        "up, or the second run did less."
        if (missing := counting.chosen - counting.counted) > 0
        else ""
    )
    return (
        f" {formatting.counted(counting.chosen, 'launch was', 'launches were')} chosen by what "
        f"could be gained: they stand for {formatting.percent(counting.gain_fraction)} of the time "
        f"above the roofs, and {formatting.percent(counting.time_fraction)} of the kernels' time. "
        f"The second run took {counting.seconds:.0f} s; counting was given {counting.limit_s:.0f} "
        f"s at most.{left_out}"
    )


def counters_fact(measured: MeasuredWork) -> Fact:
    """One line for a summary: how far the counted work agrees with the models."""
    compared = [kernel for kernel in measured.kernels if kernel.calls]
    tensor = [
        part
        for kernel in compared
        for part in kernel.flops
        if part.unit == "tensor" and part.ratio is not None
    ]
    parts = []
    if tensor:
        exact = sum(part.measured == part.modelled for part in tensor)
        parts.append(f"tensor FLOPs equal in {exact} of {len(tensor)}")
    for label, bytes_moved in (
        ("read", [kernel.bytes_read for kernel in compared]),
        ("written", [kernel.bytes_written for kernel in compared]),
    ):
        span = _span(bytes_moved)
        if span:
            parts.append(f"DRAM {label} {span} the model's")
    reasons = [reason for kernel in compared for reason in kernel.reasons]
    if reasons:
        explained = sum(reason.text != UNEXPLAINED for reason in reasons)
        parts.append(f"{explained} of {len(reasons)} differences explained")
    counted = (
        f"{formatting.count(measured.launches)} of "
        f"{formatting.count(measured.launches_in_trace)} launches"
    )
    return Fact("Counters", counted, "; ".join(parts))


def _span(figures: Iterable[Measured]) -> str:
    """The ratios of figures that matter, from the least to the largest: "0.82 to 3.49x"."""
    ratios = sorted(
        figure.ratio
        for figure in figures
        if figure.ratio is not None and (figure.modelled or 0) >= _WORTH_A_RATIO
    )
    if not ratios:
        return ""
    low, high = (f"{ratio:.2f}" for ratio in (ratios[0], ratios[-1]))
    return f"{low} x" if low == high else f"{low} to {high} x"


# Beside fewer bytes than this, what any launch reads anyway is most of the figure.
_WORTH_A_RATIO = 1_000_000


def _row(index: int, kernel: MeasuredKernel) -> MeasuredRow:
    names = [formatting.kernel_name(name) for name in kernel.kernels]
    per_call = kernel.launches // kernel.calls if kernel.calls else 0
    parts = (
        kernel.op,
        kernel.phase,
        f"{per_call} launches a call" if per_call > 1 else "",
        f"mean of {kernel.calls} calls" if kernel.calls > 1 else "",
        f"mean of {kernel.launches} launches" if not kernel.calls and kernel.launches > 1 else "",
    )
    notes = [Fact(reason.about, reason.text, reason.source) for reason in kernel.reasons]
    if kernel.not_compared:
        notes.append(Fact("not compared", kernel.not_compared))
    cells = (
        _flops_cell([part for part in kernel.flops if part.unit == "tensor"]),
        _flops_cell([part for part in kernel.flops if part.unit == "vector"]),
        _bytes_cell(kernel.bytes_read),
        _bytes_cell(kernel.bytes_written),
        MeasuredCell(formatting.byte_count(kernel.l2_bytes)),
        MeasuredCell(formatting.byte_count(kernel.l1_bytes)),
        MeasuredCell(formatting.intensity(kernel.flops_per_l2_byte)),
    )
    return MeasuredRow(
        title=" + ".join(names),
        subtitle=formatting.joined(parts),
        shapes=readable_shapes(kernel.detail, kernel.op),
        cells=cells,
        notes=tuple(notes),
        figures=tuple(
            Fact(head, cell.text, cell.ratio)
            for head, cell in zip(HEAD, cells, strict=True)
            if cell.text
        ),
        subject=RowSubject(f"measured-{index}", "operator", kernel.op),
    )


def _flops_cell(parts: list[MeasuredFlops]) -> MeasuredCell:
    """Each precision that was counted; the ratio is of the largest one."""
    counted = sorted(
        (part for part in parts if part.measured), key=lambda part: -(part.measured or 0)
    )
    if not parts:
        return MeasuredCell("")
    if not counted:
        return MeasuredCell(
            formatting.UNKNOWN if any(p.measured is None for p in parts) else "none"
        )
    text = " + ".join(
        f"{formatting.quantity(part.measured, '').strip()} {part.precision}" for part in counted
    )
    return MeasuredCell(text, _ratio(counted[0]))


def _bytes_cell(figure: Measured) -> MeasuredCell:
    return MeasuredCell(formatting.byte_count(figure.measured), _ratio(figure))


def _ratio(figure: Measured) -> str:
    """ "= model" where they are equal to the last digit."""
    if figure.ratio is None:
        return ""
    return "= model" if figure.measured == figure.modelled else f"{figure.ratio:.2f} x"


def _basis(analysis: Analysis) -> Sequence[Block]:
    if analysis.measured is None:
        return ()
    fact = counters_fact(analysis.measured)
    return (Facts((Fact(fact.label, f"{fact.value}: {fact.note}".rstrip(": ")),)),)


def _body(analysis: Analysis) -> Sequence[Block]:
    if analysis.measured is None:
        return ()
    rows = tuple(_row(index, kernel) for index, kernel in enumerate(analysis.measured.kernels))
    return (Paragraph(lead(analysis.measured)), MeasuredTable(HEAD, rows))


SECTION = Section(
    key="measured",
    title=titled("Measured against modelled"),
    fields=("measured",),
    basis=_basis,
    body=_body,
)
