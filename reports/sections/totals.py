"""The device work by kind, by phase and by precision."""

from collections.abc import Sequence
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Fact, Facts, Paragraph, Table
from gpuprof.reports.figures import per_step, roof_percent
from gpuprof.reports.sections.roof import roof_sentence
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.total_figures import Subtotal

# Kinds that the summary names.
_NAMED: Final = 5
# Of device time: a kind with less of it is not named in the summary.
_NEGLIGIBLE: Final = 0.01
# Of a row's device time: with less of it counted its figures say that they are of a part.
_ALL: Final = 0.999


def _columns(head: str) -> tuple[Column, ...]:
    numbers = ("Time", "Share", "FLOPs", "FLOP/s", "Bytes", "Bytes/s", "Of its roof")
    return (Column(head), *(Column(number, "number") for number in numbers))


def _row(one: Subtotal, steps: int) -> tuple[str, ...]:
    return (
        one.name,
        formatting.duration(per_step(steps, one.device_ns)),
        formatting.percent(one.device_fraction),
        _at_least(one.flops, one.flops_ns, one, steps),
        _rate(one.flops, one.flops_ns),
        _at_least(one.bytes_moved, one.bytes_ns, one, steps),
        _rate(one.bytes_moved, one.bytes_ns),
        _roof(one),
    )


def _at_least(count: int | None, counted_ns: int, one: Subtotal, steps: int) -> str:
    """An amount of one step, marked as a lower bound where some of the work is not counted."""
    whole = _is_whole(counted_ns, one)
    if count is None or (not count and not whole):
        return formatting.UNKNOWN
    amount = formatting.quantity(per_step(steps, count), "").strip()
    return amount if whole else f"at least {amount}"


def _rate(count: int | None, counted_ns: int) -> str:
    """That of the counted work alone."""
    if not count or not counted_ns:
        return ""
    return formatting.quantity(count / counted_ns * 1e9, "").strip()


def _roof(one: Subtotal) -> str:
    text = roof_percent(one.roof_fraction)
    if one.roof_fraction is None or _is_whole(one.roofed_ns, one):
        return text
    return f"{text} of {formatting.percent(one.roofed_ns / one.device_ns)} of its time"


def _is_whole(counted_ns: int, one: Subtotal) -> bool:
    return counted_ns >= _ALL * one.device_ns


def _summary(analysis: Analysis) -> Sequence[Block]:
    """The largest kinds with their shares of device time, on one line."""
    if analysis.totals is None or not analysis.totals.device_ns:
        return ()
    shown = [one for one in analysis.totals.by_kind[:_NAMED] if one.device_fraction >= _NEGLIGIBLE]
    named = ", ".join(f"{one.name} {formatting.percent(one.device_fraction)}" for one in shown)
    return (Facts((Fact("Work", named, "of device time"),)),)


def _body(analysis: Analysis) -> Sequence[Block]:
    if analysis.totals is None or not analysis.totals.device_ns:
        return ()
    steps, found = analysis.steps.profiled, analysis.totals
    tables = (
        ("Kind of work", found.by_kind),
        ("Phase", found.by_phase),
        ("Precision", found.by_precision),
    )
    amounts = "Times and counts are means for one step. " if steps else ""
    lead = f"{amounts}Rates and shares of the roof are of the work that has counts and a roof. "
    return (
        Paragraph(lead + roof_sentence(analysis)),
        *(
            Table(_columns(head), tuple(_row(one, steps) for one in rows))
            for head, rows in tables
            if rows
        ),
    )


SECTION = Section(
    key="totals",
    title=titled("Totals"),
    fields=("totals",),
    summary=_summary,
    body=_body,
)
