"""What collectives do over all ranks: transfer, bandwidth, waiting, what is hidden of them."""

from collections.abc import Sequence
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Paragraph, Table
from gpuprof.reports.figures import per_step
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.link_figures import CollectiveGroup, CollectiveLine, LinkFigures

_MOST_ROWS: Final = 50
_COLUMNS: Final = (
    Column("Collective"),
    Column("Ranks", "number"),
    Column("Message", "number"),
    Column("Calls", "number"),
    Column("Transfer", "number"),
    Column("Bandwidth", "number"),
    Column("Bus bandwidth", "number"),
    Column("Waiting", "number"),
    Column("Exposed", "number"),
    Column("Overlapped", "number"),
    Column("Algorithm"),
)
_AS_MEASURED: Final = Column("Of what it does", "number")
_LINE_COLUMNS: Final = (
    Column("Collective"),
    Column("Ranks"),
    Column("Of"),
    Column("alpha", "number"),
    Column("1 / beta", "number"),
    Column("Sizes", "number"),
    Column("Typically off", "number"),
    Column("At most", "number"),
)


def _body(analysis: Analysis) -> Sequence[Block]:
    links = analysis.links
    if links is None:
        return ()
    shown = links.groups[:_MOST_ROWS]
    measured = any(one.measured_fraction is not None for one in links.groups)
    columns: tuple[Column, ...] = _COLUMNS
    rows = tuple(_row(one, links.steps) for one in shown)
    if measured:
        columns = (*columns, _AS_MEASURED)
        rows = tuple(
            (*row, formatting.percent(one.measured_fraction))
            for row, one in zip(rows, shown, strict=True)
        )
    blocks: list[Block] = [Paragraph(_lead(measured=measured)), Table(columns, rows)]
    more = len(links.groups) - len(shown) + links.left_out
    if more:
        blocks.append(
            Paragraph(f"{formatting.counted(more, 'other kind')} took less time.", "note")
        )
    blocks += _lines(links)
    return tuple(blocks)


def _lead(*, measured: bool) -> str:
    said = (
        "Over all ranks that recorded a collective. Calls are of one step; all other figures are "
        "of one call: the transfer is the shortest of its times over the ranks, in the median of "
        "the calls; waiting for ranks that come later, exposed and overlapped time are means over "
        "ranks. Message and bandwidths are those of nccl-tests."
    )
    if measured:
        said += (
            " The last column compares with what gpuprof calibrate measured under torchrun of the "
            "same kind, size and number of ranks."
        )
    return said


def _row(one: CollectiveGroup, steps: int) -> tuple[str, ...]:
    hosts = f" on {one.hosts} hosts" if one.hosts is not None and one.hosts > 1 else ""
    compiled = f"compiled for {one.compiled_for}" if one.compiled_for else ""
    return (
        one.collective or "communication",
        f"{one.group_size}{hosts}",
        formatting.byte_count(one.message_bytes),
        formatting.count(per_step(steps, one.calls)),
        formatting.duration(one.transfer_ns),
        formatting.byte_rate(one.bytes_per_s),
        formatting.byte_rate(one.bus_bytes_per_s),
        formatting.duration(one.waiting_ns),
        formatting.duration(one.exposed_ns),
        formatting.duration(one.overlapped_ns),
        one.algorithm or compiled or formatting.UNKNOWN,
    )


def _lines(links: LinkFigures) -> list[Block]:
    fitted = [line for line in links.lines if line.fit is not None]
    blocks: list[Block] = []
    if fitted:
        said = "alpha + beta x bytes through the transfers, by least squares of relative errors."
        if any(line.algorithm for line in fitted):
            said += (
                " Of a hop: one step of a ring or tree and a byte on one link, if it ran as one; "
                "the one that is less off explains the times better."
            )
        blocks = [Paragraph(said), Table(_LINE_COLUMNS, tuple(map(_line_row, fitted)))]
    reasons = [
        f"{line.collective} over {line.group_sizes[0]} ranks: {line.reason}"
        for line in links.lines
        if line.fit is None
    ]
    if reasons:
        listed = "; ".join(reasons[:_MOST_ROWS])
        blocks.append(Paragraph(f"No alpha and beta: {listed}.", "note"))
    return blocks


def _line_row(line: CollectiveLine) -> tuple[str, ...]:
    fit = line.fit
    assert fit is not None, "lines without a fit have a reason"
    return (
        line.collective,
        ", ".join(map(str, line.group_sizes)),
        f"{line.algorithm} hop" if line.algorithm else "call",
        formatting.duration(fit.alpha_ns),
        formatting.byte_rate(fit.bytes_per_s),
        str(fit.sizes),
        formatting.percent(fit.typical_error),
        formatting.percent(fit.largest_error),
    )


SECTION = Section(
    key="links",
    title=titled("Collectives over all ranks"),
    fields=("links",),
    body=_body,
)
