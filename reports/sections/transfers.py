"""What crosses links: communication with other devices, and copies to and from the host."""

from collections.abc import Sequence

from gpuprof.reports import formatting
from gpuprof.reports.blocks import (
    Block,
    Column,
    ComputedFigures,
    Fact,
    Facts,
    Paragraph,
    Table,
)
from gpuprof.reports.computed.of_transfer import of_bandwidths
from gpuprof.reports.figures import per_step, roof_percent, transfer_name
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis, Transfer
from gpuprof.roofline.classes import COMMUNICATION

_MOST_ROWS = 50
# Facts of a terminal, and from which share of the step on it names copies.
_NAMED = 4
_NOTABLE = 0.01
_COLUMNS = (
    Column("What"),
    Column("Message", "number"),
    Column("Ranks", "number"),
    Column("Calls", "number"),
    Column("Time", "number"),
    Column("Waiting for ranks", "number"),
    Column("Exposed", "number"),
    Column("Bandwidth", "number"),
    Column("Bus bandwidth", "number"),
    Column("Of its link", "number"),
    Column("Link"),
)
# Where any of them was measured on this machine.
_AS_MEASURED = Column("Of what it does", "number")


def _together(transfers: Sequence[Transfer]) -> tuple[tuple[str, tuple[Transfer, ...]], ...]:
    """The transfers by name, those of which most is exposed first."""
    found: dict[str, list[Transfer]] = {}
    for transfer in transfers:
        found.setdefault(transfer_name(transfer), []).append(transfer)
    groups = ((name, tuple(several)) for name, several in found.items())
    return tuple(sorted(groups, key=lambda group: -sum(one.exposed_ns for one in group[1])))


def _fact(label: str, name: str, transfers: Sequence[Transfer], steps: int) -> Fact:
    """All transfers of one name: what is exposed of them, and how fast they were together."""
    device_ns = sum(one.device_ns for one in transfers)
    exposed = formatting.duration(per_step(steps, sum(one.exposed_ns for one in transfers)))
    time = formatting.duration(per_step(steps, device_ns))
    each = " a step" if steps else ""
    notes = [f"{exposed} exposed of {time}{each}"]
    number = per_step(steps, sum(one.calls for one in transfers))
    calls = f"{formatting.count(number)} call{'' if number == 1 else 's'}"
    total = _sum([one.total_bytes for one in transfers])
    size = "" if total is None else f", {formatting.byte_count(per_step(steps, total))}"
    ranks = {one.group_size for one in transfers}
    group = f" over {ranks.pop()} ranks" if len(ranks) == 1 and None not in ranks else ""
    notes.append(f"{calls}{size}{group}")
    waiting_ns = _sum([one.waiting_ns for one in transfers])
    if waiting_ns:
        waiting = formatting.duration(per_step(steps, waiting_ns))
        said = f"{waiting} of it waits for other ranks"
        in_a_row_ns = _sum([one.call_waiting_ns for one in transfers])
        if in_a_row_ns:
            in_a_row = formatting.duration(per_step(steps, in_a_row_ns))
            said += f", {in_a_row} of that in calls that follow each other directly"
        notes.append(said)
    notes.append(_rate(transfers, total, device_ns - (waiting_ns or 0)))
    return Fact(label, name, "; ".join(note for note in notes if note))


def _rate(transfers: Sequence[Transfer], total: float | None, moving_ns: float) -> str:
    """The bandwidth of all of them together, and its share of the link where all have one."""
    if total is None or not moving_ns:
        return ""
    moved = _sum([_link_bytes(one) for one in transfers])
    name, count = ("", total) if moved is None else ("bus bandwidth ", moved)
    bounds = {one.kind == COMMUNICATION and one.waiting_ns is None for one in transfers}
    bound = "at least " if True in bounds else ""
    said = f"{name}{bound}{formatting.byte_rate(count / moving_ns * 1e9)}"
    if all(one.latency_ns is not None for one in transfers):
        return "each too small for its link's bandwidth"
    roof_ns, roofs = _sum([one.roof_ns for one in transfers]), {one.roof for one in transfers}
    if roof_ns is not None and len(roofs) == 1:
        said += f", {roof_percent(roof_ns / moving_ns)} of {roofs.pop()}"
    measured_ns = _sum([one.measured_ns for one in transfers])
    if measured_ns is None:
        return said
    sizes = {one.message_bytes for one in transfers}
    at = "these sizes" if len(sizes) > 1 else formatting.byte_count(sizes.pop())
    share = formatting.percent(measured_ns / moving_ns)
    return f"{said}, {share} of what this link does at {at}"


def _link_bytes(transfer: Transfer) -> float | None:
    """What of a collective's messages crossed the link."""
    if transfer.bus_bytes_per_s is None:
        return None
    return transfer.bus_bytes_per_s * (transfer.device_ns - (transfer.waiting_ns or 0)) / 1e9


def _sum(values: Sequence[float | None]) -> float | None:
    """The sum where all are known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _summary(analysis: Analysis) -> Sequence[Block]:
    steps = analysis.steps.profiled
    groups = [
        (name, several)
        for name, several in _together(analysis.transfers)
        if _is_notable(several, analysis)
    ]
    facts = tuple(
        _fact("" if index else "Transfers", name, several, steps)
        for index, (name, several) in enumerate(groups[:_NAMED])
    )
    return (Facts(facts),) if facts else ()


def _is_notable(transfers: Sequence[Transfer], analysis: Analysis) -> bool:
    """Whether they are communication, or copies that take more than very little of a step."""
    if any(one.kind == COMMUNICATION for one in transfers) or not analysis.steps.length_ns:
        return True
    device_ns = sum(one.device_ns for one in transfers)
    return per_step(analysis.steps.profiled, device_ns) >= _NOTABLE * analysis.steps.length_ns


def _body(analysis: Analysis) -> Sequence[Block]:
    if not analysis.transfers:
        return ()
    steps = analysis.steps.profiled
    shown, others = analysis.transfers[:_MOST_ROWS], analysis.transfers[_MOST_ROWS:]
    columns: tuple[Column, ...] = _COLUMNS
    rows = tuple(_row(transfer, steps) for transfer in shown)
    if _any_measured(analysis):
        columns = (*columns, _AS_MEASURED)
        rows = tuple(
            (*row, formatting.percent(transfer.measured_fraction))
            for row, transfer in zip(rows, shown, strict=True)
        )
    blocks: list[Block] = [Paragraph(_lead(analysis)), Table(columns, rows)]
    if others:
        exposed = formatting.duration(per_step(steps, sum(one.exposed_ns for one in others)))
        number = formatting.counted(len(others), "other kind")
        blocks.append(Paragraph(f"{number} expose {exposed} together.", "note"))
    computed = tuple(of_bandwidths(shown[0]))
    if computed:
        title = f"How bandwidths are computed, on {transfer_name(shown[0])}"
        blocks.append(ComputedFigures(title, computed))
    return tuple(blocks)


def _lead(analysis: Analysis) -> str:
    said = "Means for one step. " if analysis.steps.profiled else ""
    said += "Exposed is the time that no other work on the device hides. "
    if any(transfer.kind == COMMUNICATION for transfer in analysis.transfers):
        said += (
            "Message, bandwidth and bus bandwidth of collectives are those of nccl-tests, over "
            "the time without waiting for other ranks. Where a capture does not hold all ranks, "
            "waiting is within the time, and bandwidths are lower bounds. "
        )
    if _any_measured(analysis):
        said += (
            "The last column compares with collectives of the same kind, size and ranks, as "
            "gpuprof calibrate measured them under torchrun on this machine."
        )
    return said.rstrip()


def _any_measured(analysis: Analysis) -> bool:
    return any(transfer.measured_fraction is not None for transfer in analysis.transfers)


def _row(transfer: Transfer, steps: int) -> tuple[str, ...]:
    ranks = "" if transfer.group_size is None else str(transfer.group_size)
    bus = transfer.bus_bytes_per_s
    return (
        transfer_name(transfer),
        formatting.byte_count(transfer.message_bytes),
        ranks or (formatting.UNKNOWN if transfer.kind == COMMUNICATION else ""),
        formatting.count(per_step(steps, transfer.calls)),
        formatting.duration(per_step(steps, transfer.device_ns)),
        _waiting(transfer, steps),
        formatting.duration(per_step(steps, transfer.exposed_ns)),
        formatting.byte_rate(transfer.bytes_per_s),
        formatting.byte_rate(bus) if transfer.kind == COMMUNICATION else "",
        roof_percent(transfer.roof_fraction),
        transfer.roof or transfer.no_roof,
    )


def _waiting(transfer: Transfer, steps: int) -> str:
    if transfer.kind != COMMUNICATION:
        return ""
    if transfer.waiting_ns is None:
        return formatting.UNKNOWN
    return formatting.duration(per_step(steps, transfer.waiting_ns))


SECTION = Section(
    key="transfers",
    title=titled("Communication and copies"),
    fields=("transfers",),
    summary=_summary,
    body=_body,
)
