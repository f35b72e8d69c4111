"""What kernels lose to the communication that runs beside them."""

from collections.abc import Sequence
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Fact, Facts, Paragraph, Table
from gpuprof.reports.sections.section import Section, titled
from gpuprof.reports.shapes import readable_shapes
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.overlap_figures import SlowedByCommunication, SlowedKernel

_MOST_ROWS: Final = 50
# Of a step: less stands in the report only.
_WORTH_SAYING: Final = 0.01
_COLUMNS: Final = (
    Column("Kernel", "code"),
    Column("Operator"),
    Column("Under a collective", "number"),
    Column("Alone", "number"),
    Column("Times as long", "number"),
    Column("Lost a step", "number"),
)


def _summary(analysis: Analysis) -> Sequence[Block]:
    slowed, length_ns = analysis.slowed_by_communication, analysis.steps.length_ns
    if slowed is None or not length_ns or slowed.lost_ns < _WORTH_SAYING * length_ns:
        return ()
    first = slowed.kernels[0]
    note = (
        f"a step: {_kernels(slowed)} {slowed.ratio:.2f} times as long under a collective; most "
        f"{formatting.kernel_name(first.name)} {formatting.duration(first.lost_ns)}"
    )
    return (Facts((Fact("Under NCCL", formatting.duration(slowed.lost_ns), note),)),)


def _kernels(slowed: SlowedByCommunication) -> str:
    one = len(slowed.kernels) == 1
    return f"{formatting.counted(len(slowed.kernels), 'kernel')} take{'s' if one else ''}"


def _body(analysis: Analysis) -> Sequence[Block]:
    slowed = analysis.slowed_by_communication
    if slowed is None:
        return ()
    lead = Paragraph(
        "Communication that other work hides takes multiprocessors and memory bandwidth from it. "
        "These kernels ran both alone and under a collective in the same steps; by the median they "
        f"lose {formatting.duration(slowed.lost_ns)} a step. Kernels that always, or never, ran "
        "under one are not among them."
    )
    rows = tuple(_row(one) for one in slowed.kernels[:_MOST_ROWS])
    return (lead, Table(_COLUMNS, rows))


def _row(one: SlowedKernel) -> tuple[str, ...]:
    operator = formatting.joined((one.op, one.phase, readable_shapes(one.op_detail, one.op)))
    return (
        formatting.printable(formatting.short_name(one.name)),
        formatting.printable(operator),
        formatting.count(one.under),
        formatting.count(one.alone),
        f"{one.ratio:.2f}",
        formatting.duration(one.lost_ns),
    )


SECTION = Section(
    key="overlap",
    title=titled("Slowed by communication"),
    fields=("slowed_by_communication",),
    summary=_summary,
    body=_body,
)
