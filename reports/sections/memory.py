"""What memory held at its peak, how it went over time, and what was there when it ran out."""

from collections.abc import Sequence
from typing import Final, TypeVar

from gpuprof.reports import formatting
from gpuprof.reports.blocks import (
    Block,
    Column,
    Fact,
    Facts,
    MemoryPlot,
    Paragraph,
    Table,
)
from gpuprof.reports.figures import per_step
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.memory_figures import (
    DeviceMemory,
    Fragmentation,
    MemoryHolder,
    MemoryKind,
    MemoryMoment,
    MemoryUse,
    OutOfMemory,
)

_T = TypeVar("_T")

# A summary speaks of memory where more of the device is used, or of what is reserved is unused.
_NEARLY_FULL: Final = 0.9
_FRAGMENTED: Final = 0.1
# Where less of the device than this is reserved, what is unused of it is in nobody's way.
_MUCH: Final = 0.1
# Kinds that a summary names.
_NAMED: Final = 3

_LABELS: Final[dict[MemoryKind, str]] = {
    "parameters": "parameters and buffers",
    "gradients": "gradients of parameters",
    "optimizer state": "optimizer state",
    "activations": "activations, kept from the forward pass",
    "backward": "allocated in the backward pass",
    "workspace": "workspace, given back by the same operator",
    "tensors": "other tensors of the program, from before the profile",
    "earlier": "from before the profile, holder unknown",
    "other": "other",
}
_SHORT: Final[dict[MemoryKind, str]] = {
    "parameters": "parameters",
    "gradients": "gradients",
    "activations": "activations",
    "backward": "backward",
    "workspace": "workspace",
    "tensors": "other tensors",
    "earlier": "holder unknown",
}
_KINDS: Final = (Column("Kind"), Column("Bytes", "number"), Column("Share", "number"))
_HOLDERS: Final = (
    Column("Operator", "code"),
    Column("Module", "code"),
    Column("Line", "code"),
    Column("Kind"),
    Column("Blocks", "number"),
    Column("Bytes", "number"),
    Column("Share", "number"),
)


def _summary(analysis: Analysis) -> Sequence[Block]:
    use = analysis.memory
    if use is None:
        return ()
    blocks: list[Block] = []
    if use.out_of_memory is not None:
        blocks += _failure_summary(use.out_of_memory)
    several = len(use.devices) > 1
    facts = [fact for memory in use.devices for fact in _notable(memory, several)]
    if use.out_of_memory is not None and use.out_of_memory.fatal:
        facts = []
    elif not analysis.kernels:
        # There is nothing else to tell of.
        facts = [fact for memory in use.devices for fact in _alone(memory, several)]
    if facts:
        blocks.append(Facts(tuple(facts)))
    return tuple(blocks)


def _notable(memory: DeviceMemory, several: bool) -> list[Fact]:
    """What a summary says of one device: something only where memory matters."""
    label = f"Memory {memory.device}" if several else "Memory"
    peak, reserved, total = _peak_bytes(memory), _reserved_bytes(memory), memory.total_bytes
    if peak is None or reserved is None or not total:
        return []
    notes = []
    if reserved > _NEARLY_FULL * total:
        held = formatting.percent(reserved / total)
        notes.append(f"{held} of the device reserved at most")
        notes += [_kinds_text(memory.peak)] if memory.peak is not None else []
    unused = 1 - peak / reserved
    if unused > _FRAGMENTED and reserved > _MUCH * total:
        notes.append(f"{formatting.percent(unused)} of what was reserved was never in use at once")
    if memory.retries:
        times = "once" if memory.retries == 1 else f"{memory.retries} times"
        notes.append(f"{times} the allocator gave all free memory back to find some")
    if not notes:
        return []
    return [Fact(label, f"peak {formatting.byte_count(peak)}", "; ".join(notes))]


def _alone(memory: DeviceMemory, several: bool) -> list[Fact]:
    """All that a summary has of a capture of memory alone."""
    label = f"Memory {memory.device}" if several else "Memory"
    facts = [] if memory.fragmentation is None else [_fragmentation_fact(memory.fragmentation)]
    if memory.peak is None:
        return facts
    peak = formatting.byte_count(memory.peak.allocated_bytes)
    reserved = memory.peak.reserved_bytes
    held = "" if reserved is None else f"{formatting.byte_count(reserved)} reserved then"
    return [Fact(label, f"peak {peak}", held), *_largest_facts(memory.peak), *facts]


def _largest_facts(moment: MemoryMoment) -> list[Fact]:
    """The largest of what lived at one moment."""
    return [
        Fact("" if index else "Largest", formatting.byte_count(holder.bytes), _origin(holder))
        for index, holder in enumerate(moment.holders[:_NAMED])
    ]


def _driver_facts(use: MemoryUse, steps: int) -> list[Fact]:
    """Calls for memory in the profiled steps: in steady steps there are none."""
    if not use.driver_calls or not steps:
        return []
    time = formatting.duration(per_step(steps, use.driver_calls_ns))
    calls = formatting.count(per_step(steps, use.driver_calls))
    note = f"{calls} calls a step get memory from the driver or give it back"
    return [Fact("Allocator", f"{time} a step", note)]


def _failure_summary(failure: OutOfMemory) -> list[Block]:
    said = _failure_text(failure)
    facts = [Fact("Out of memory", said[0], said[1])]
    if failure.live is not None and failure.live.kinds:
        facts.append(Fact("Live then", *_amount_and_kinds(failure.live)))
        facts += _largest_facts(failure.live)
    facts += [Fact("" if index else "To do", advice) for index, advice in enumerate(failure.advice)]
    return [Facts(tuple(facts))]


def _failure_text(failure: OutOfMemory) -> tuple[str, str]:
    """How much was asked for, and what there was."""
    notes = []
    if failure.limit_bytes is not None:
        notes.append(f"of {formatting.byte_count(failure.limit_bytes)} that torch may use")
    if failure.free_bytes is not None:
        notes.append(f"{formatting.byte_count(failure.free_bytes)} of the device was free")
    held = failure.fragmentation
    if held is not None:
        unused = held.reserved_bytes - held.allocated_bytes - held.pending_bytes
        largest = formatting.byte_count(held.largest_free_block_bytes)
        notes.append(
            f"{formatting.byte_count(unused)} reserved and unused, the largest piece {largest}"
        )
    if failure.line:
        notes.append(f"at {failure.line}")
    if not failure.fatal:
        notes.append("the program went on")
    return f"{formatting.byte_count(failure.asked_bytes)} asked for", "; ".join(notes)


def _amount_and_kinds(moment: MemoryMoment) -> tuple[str, str]:
    return formatting.byte_count(moment.allocated_bytes), _kinds_text(moment)


def _kinds_text(moment: MemoryMoment) -> str:
    """The largest kinds with their shares."""
    whole = moment.allocated_bytes or 1
    return ", ".join(
        f"{_SHORT.get(each.kind, _LABELS[each.kind])} {formatting.percent(each.bytes / whole)}"
        for each in moment.kinds[:_NAMED]
    )


def _origin(holder: MemoryHolder) -> str:
    """Where memory came from, in a clause."""
    kind = _SHORT.get(holder.kind, _LABELS[holder.kind])
    blocks = "" if holder.blocks is None else f" ({formatting.counted(holder.blocks, 'block')})"
    return formatting.joined([kind, holder.operator, holder.module, holder.line]) + blocks


def _peak_bytes(memory: DeviceMemory) -> int | None:
    """The most that was allocated: of the run, else while events were recorded."""
    if memory.run_peak_allocated_bytes is not None:
        return memory.run_peak_allocated_bytes
    return None if memory.peak is None else memory.peak.allocated_bytes


def _reserved_bytes(memory: DeviceMemory) -> int | None:
    if memory.run_peak_reserved_bytes is not None:
        return memory.run_peak_reserved_bytes
    return memory.peak_reserved_bytes


def _body(analysis: Analysis) -> Sequence[Block]:
    use = analysis.memory
    if use is None:
        return ()
    blocks: list[Block] = []
    if use.out_of_memory is not None:
        blocks += _failure_body(use.out_of_memory)
    for memory in use.devices:
        blocks += _device_body(memory, analysis.steps.profiled, several=len(use.devices) > 1)
    facts = _driver_facts(use, analysis.steps.profiled)
    if facts:
        blocks.append(Facts(tuple(facts)))
    return tuple(blocks)


def _device_body(memory: DeviceMemory, steps: int, *, several: bool) -> list[Block]:
    name = "Main memory" if memory.device is None else f"Device {memory.device}"
    blocks: list[Block] = [Facts(_device_facts(memory, steps), name if several else "")]
    if memory.since_first_event:
        blocks.append(
            Paragraph("Only what was allocated while the trace was recorded is counted.", "note")
        )
    if memory.timeline is not None:
        caption = "Memory over time: allocated (line) and reserved (dashed)"
        if memory.timeline.steps_ns:
            caption += "; profiled steps are shaded"
        blocks.append(MemoryPlot(memory.timeline, memory.total_bytes, caption))
    if memory.peak is not None:
        blocks += _moment_tables(memory.peak, "at the peak")
    return blocks


def _device_facts(memory: DeviceMemory, steps: int) -> tuple[Fact, ...]:
    facts = []
    peak = memory.peak
    if peak is not None:
        where = "" if peak.step is None else f"in profiled step {peak.step} of {steps}"
        reserved = peak.reserved_bytes
        held = "" if reserved is None else f"{formatting.byte_count(reserved)} reserved then"
        note = "; ".join(part for part in (where, held) if part)
        facts.append(Fact("Peak", formatting.byte_count(peak.allocated_bytes), note))
    if memory.run_peak_allocated_bytes is not None:
        reserved = memory.run_peak_reserved_bytes
        note = "" if reserved is None else f"{formatting.byte_count(reserved)} reserved at most"
        total = memory.total_bytes
        if reserved is not None and total:
            note += f", {formatting.percent(reserved / total)} of the device"
        value = formatting.byte_count(memory.run_peak_allocated_bytes)
        facts.append(Fact("Of the whole run", value, note))
    if memory.fragmentation is not None:
        facts.append(_fragmentation_fact(memory.fragmentation))
    if len(memory.steps) > 1:
        peaks = ", ".join(formatting.byte_count(each.peak_bytes) for each in memory.steps)
        ends = ", ".join(formatting.byte_count(each.end_bytes) for each in memory.steps)
        facts.append(Fact("Peak of each step", peaks))
        facts.append(Fact("Left at its end", ends))
    if memory.retries is not None:
        note = "times that the allocator gave all free memory back and tried again"
        facts.append(Fact("Retries", formatting.count(memory.retries), note))
    if memory.failures:
        facts.append(Fact("Failures", formatting.count(memory.failures)))
    return tuple(facts)


def _fragmentation_fact(held: Fragmentation) -> Fact:
    reserved = formatting.byte_count(held.reserved_bytes)
    note = (
        f"of the {reserved} reserved at the end; largest free block "
        f"{formatting.byte_count(held.largest_free_block_bytes)}, "
        f"{formatting.byte_count(held.inactive_split_bytes)} in pieces between live blocks"
    )
    return Fact("Unused", formatting.percent(held.free_fraction), note)


def _moment_tables(moment: MemoryMoment, when: str) -> list[Block]:
    if not moment.kinds:
        return [Paragraph(f"What was live {when} is not known: events were lost.", "absent")]
    whole = moment.allocated_bytes or 1
    kinds = tuple(
        (_LABELS[one.kind], formatting.byte_count(one.bytes), formatting.percent(one.bytes / whole))
        for one in moment.kinds
    )
    rows = tuple(
        (
            holder.operator or formatting.UNKNOWN,
            holder.module or formatting.UNKNOWN,
            holder.line or formatting.UNKNOWN,
            _SHORT.get(holder.kind, _LABELS[holder.kind]),
            formatting.count(holder.blocks),
            formatting.byte_count(holder.bytes),
            formatting.percent(holder.bytes / whole),
        )
        for holder in moment.holders
    )
    operators = any(holder.operator for holder in moment.holders)
    modules = any(holder.module for holder in moment.holders)
    lines = any(holder.line for holder in moment.holders)
    used = [operators, modules, lines, len(kinds) > 1, True, True, True]
    by_kind = "by kind and " if len(kinds) > 1 else ""
    blocks: list[Block] = [
        Paragraph(f"What was live {when}, {by_kind}by what allocated it."),
        *((Table(_KINDS, kinds),) if len(kinds) > 1 else ()),
        Table(_chosen(_HOLDERS, used), tuple(_chosen(row, used) for row in rows)),
    ]
    if moment.other_holders:
        rest = formatting.byte_count(moment.other_holders_bytes)
        number = formatting.counted(moment.other_holders, "other origin")
        blocks.append(Paragraph(f"{number} hold {rest} together.", "note"))
    return blocks


def _chosen(cells: Sequence[_T], used: Sequence[bool]) -> tuple[_T, ...]:
    return tuple(cell for cell, shown in zip(cells, used, strict=True) if shown)


def _failure_body(failure: OutOfMemory) -> list[Block]:
    value, note = _failure_text(failure)
    facts = [Fact("Out of memory", value, note)]
    facts += [Fact("" if index else "To do", advice) for index, advice in enumerate(failure.advice)]
    blocks: list[Block] = [Facts(tuple(facts))]
    if failure.live is not None:
        blocks += _moment_tables(failure.live, "when memory ran out")
    return blocks


SECTION = Section(
    key="memory",
    title=titled("Memory"),
    fields=("memory",),
    summary=_summary,
    body=_body,
)
