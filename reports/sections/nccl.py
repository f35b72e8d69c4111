"""NCCL's communicators as its logs tell: transports, channels, algorithms, warnings."""

from collections.abc import Sequence
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Fact, Facts, Paragraph, Table
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.nccl_figures import LoggedCommunicator, LoggedTransport, NcclFigures
from gpuprof.roofline.ranks.rank_text import ranks_text

_MOST_ROWS: Final = 50
_MOST_DEVICES: Final = 8
_COLUMNS: Final = (
    Column("Communicator"),
    Column("Ranks", "number"),
    Column("Hosts", "number"),
    Column("Version"),
    Column("Network"),
    Column("Channels", "number"),
    Column("Rings", "number"),
    Column("Trees", "number"),
    Column("NVLS"),
    Column("Transports"),
)
_CHOICE_COLUMNS: Final = (
    Column("Collective"),
    Column("Message", "number"),
    Column("Ranks", "number"),
    Column("Calls", "number"),
    Column("Algorithm"),
    Column("Channels", "number"),
)


def _summary(analysis: Analysis) -> Sequence[Block]:
    found = analysis.nccl
    if found is None:
        return ()
    first = found.communicators[0]
    notes = [_transports(first), _nvls(first)]
    if len(found.communicators) > 1:
        notes.append(formatting.counted(len(found.communicators) - 1, "other communicator"))
    size = "" if first.size is None else f"{first.size} ranks"
    facts = [Fact("NCCL", f"{first.version} {size}".strip(), "; ".join(filter(None, notes)))]
    facts += [Fact("", "", problem) for problem in _problems(found)]
    return (Facts(tuple(facts)),)


def _problems(found: NcclFigures) -> list[str]:
    said = []
    for one in found.communicators:
        if one.not_initialised:
            ranks = ranks_text(one.not_initialised)
            said.append(f"initialisation of {one.identity} did not end on ranks {ranks}")
        said += [f"ranks differ in {each}" for each in one.differences]
    number = len(found.warnings)
    if number:
        first = found.warnings[0]
        said.append(
            f"{formatting.counted(number, 'warning')}: {first.text} (ranks "
            f"{ranks_text(first.ranks)})"
        )
    return said


def _transports(one: LoggedCommunicator) -> str:
    """ "48 connections by P2P/CUMEM, 16 by NET/IB with GPUDirect RDMA"."""
    return ", ".join(
        f"{each.connections}{'' if index else ' connections'} by {_transport(each)}"
        for index, each in enumerate(one.transports)
    )


def _transport(one: LoggedTransport) -> str:
    if one.gpu_direct is None:
        return one.name
    return f"{one.name} {'with' if one.gpu_direct else 'without'} GPUDirect RDMA"


def _nvls(one: LoggedCommunicator) -> str:
    if one.nvls is None:
        return ""
    if not one.nvls:
        return "the switch cannot reduce (NVLS)"
    if one.nvls_channels == 0:
        return "the switch could reduce (NVLS), and no channel does"
    return "the switch can reduce (NVLS)"


def _body(analysis: Analysis) -> Sequence[Block]:
    found = analysis.nccl
    if found is None:
        return ()
    rows = tuple(map(_row, found.communicators[:_MOST_ROWS]))
    blocks: list[Block] = [Table(_COLUMNS, rows)]
    blocks += [Paragraph(formatting.sentence(problem)) for problem in _problems(found)[:_MOST_ROWS]]
    choices = tuple(
        (
            each.collective,
            formatting.byte_count(each.message_bytes),
            formatting.count(one.size),
            formatting.count(each.calls),
            each.text,
            formatting.count(each.channels),
        )
        for one in found.communicators
        for each in one.chosen
    )
    if choices:
        blocks.append(Paragraph("What NCCL chose, as its first rank logs it."))
        blocks.append(Table(_CHOICE_COLUMNS, choices[:_MOST_ROWS]))
    blocks += [
        Paragraph(f"Warning of ranks {ranks_text(each.ranks)}: {each.text}", "note")
        for each in found.warnings[1:_MOST_ROWS]
    ]
    if found.settings:
        blocks.append(Paragraph(f"Set by the environment: {', '.join(found.settings)}.", "note"))
    return tuple(blocks)


def _row(one: LoggedCommunicator) -> tuple[str, ...]:
    devices = ", ".join(one.network_devices[:_MOST_DEVICES])
    logged = "" if one.size in (None, len(one.ranks)) else f" ({len(one.ranks)} logged)"
    return (
        one.identity or "not certain which",
        f"{formatting.count(one.size)}{logged}",
        formatting.count(one.hosts),
        one.version or formatting.UNKNOWN,
        f"{one.network} ({devices})" if devices else one.network or formatting.UNKNOWN,
        formatting.count(one.channels),
        formatting.count(one.rings),
        formatting.count(one.trees),
        _nvls(one) or formatting.UNKNOWN,
        _transports(one) or formatting.UNKNOWN,
    )


SECTION = Section(
    key="nccl",
    title=titled("NCCL"),
    fields=("nccl",),
    summary=_summary,
    body=_body,
)
