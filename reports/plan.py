"""What `gpuprof plan` prints: the ranked layouts, and what the first of them takes."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Fact
from gpuprof.reports.terminal import facts_table
from gpuprof.roofline.plan_figures import (
    PlannedLayout,
    PlannedTransfer,
    TrainingPlan,
)

# A part of a step that takes less of it is not named.
_SMALL = 0.02
_PARTS: Mapping[str, str] = MappingProxyType(
    {
        "memory_bound_ns": "memory-bound",
        "recompute_ns": "recomputation",
        "tensor_ns": "tensor parallel",
        "expert_ns": "expert parallel",
        "pipeline_ns": "pipeline sends",
        "bubble_ns": "pipeline bubble",
        "data_ns": "gradients and ZeRO",
        "slowed_ns": "SM contention",
        "optimizer_ns": "optimizer",
    }
)
_MEMORY: Mapping[str, str] = MappingProxyType(
    {
        "parameters_bytes": "parameters",
        "gradients_bytes": "gradients",
        "optimizer_bytes": "optimizer",
        "gathered_bytes": "gathered by ZeRO",
        "activations_bytes": "activations",
    }
)


def render_plan(plan: TrainingPlan, console: Console, top: int) -> None:
    """Print `plan`: the `top` fastest layouts, the first of them in detail, and what it assumes."""
    console.print(facts_table(_plan_facts(plan)))
    console.print()
    if plan.smallest is not None:
        console.print(f"No layout fits. The least memory: {layout_name(plan.smallest)}.")
        console.print(facts_table(_layout_facts(plan.smallest)))
        return
    console.print(_layouts_table(plan.layouts[:top]))
    best = plan.layouts[0]
    console.print()
    console.print(f"1: {layout_name(best)}", style="bold")
    console.print(facts_table(_layout_facts(best)))
    if best.transfers:
        console.print(_transfers_table(best.transfers))
    for note in _notes(plan):
        console.print(note, style="dim")


def layout_name(layout: PlannedLayout) -> str:
    """The degrees of a layout: "TP 8, PP 2, DP 4, ZeRO 1, micro-batch 2"."""
    expert = f", EP {layout.expert}" if layout.expert > 1 else ""
    chunks = f", {layout.chunks} chunks a stage" if layout.chunks > 1 else ""
    checkpointing = "" if layout.checkpointing == "none" else f", {layout.checkpointing}"
    return (
        f"TP {layout.tensor}, PP {layout.pipeline}, DP {layout.data}{expert}, ZeRO {layout.zero}, "
        f"micro-batch {layout.micro_batch}{chunks}"
        f"{checkpointing and checkpointing + ' checkpointing'}"
    )


def _plan_facts(plan: TrainingPlan) -> Iterator[Fact]:
    multiplied = f"{plan.multiplied:,} multiplied with a token"
    yield Fact("Model", f"{plan.parameters:,} parameters", multiplied)
    memory = (
        f"{formatting.byte_count(plan.usable_bytes)} of "
        f"{formatting.byte_count(plan.memory_bytes)} each usable"
    )
    yield Fact("GPUs", f"{plan.gpus} x {plan.device}", memory)
    yield Fact("Computing", formatting.flops_rate(plan.flops_per_s), plan.rate_basis)
    if plan.link_bytes_per_s is not None:
        yield Fact("Link", formatting.byte_rate(plan.link_bytes_per_s), plan.link_basis)
    if plan.network_bytes_per_s is not None:
        yield Fact("Network", formatting.byte_rate(plan.network_bytes_per_s), "of a GPU, as given")
    yield Fact("Layouts", f"{plan.fitting:,} of {plan.tried:,} fit")


def _layouts_table(layouts: tuple[PlannedLayout, ...]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    experts = any(layout.expert > 1 for layout in layouts)
    names = ["", "TP", "PP", "DP", *(["EP"] if experts else []), "ZeRO", "Batch"]
    for name in (*names, "Memory", "Step", "MFU"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("Costs", overflow="fold")
    for rank, layout in enumerate(layouts, start=1):
        degrees = [layout.tensor, layout.pipeline, layout.data]
        degrees += [layout.expert] if experts else []
        table.add_row(
            str(rank),
            *map(str, degrees),
            str(layout.zero),
            f"{layout.micro_batches} x {layout.micro_batch}",
            formatting.byte_count(layout.total_bytes),
            formatting.duration(layout.step_ns),
            formatting.percent(layout.mfu),
            ", ".join(_costs(layout)),
        )
    return table


def _costs(layout: PlannedLayout) -> Iterator[str]:
    """What takes time beside computing, most first, and how memory was kept low."""
    parts = {name: getattr(layout.time, field) for field, name in _PARTS.items()}
    for name, nanoseconds in sorted(parts.items(), key=lambda part: -part[1]):
        if nanoseconds > _SMALL * layout.step_ns:
            yield f"{name} {nanoseconds / layout.step_ns:.0%}"
    if layout.checkpointing != "none":
        yield f"{layout.checkpointing} checkpointing"
    if layout.chunks > 1:
        yield f"{layout.chunks} chunks a stage"


def _layout_facts(layout: PlannedLayout) -> Iterator[Fact]:
    memory = [
        f"{name} {formatting.byte_count(value)}"
        for field, name in _MEMORY.items()
        if (value := getattr(layout.memory, field))
    ]
    yield Fact("Memory", formatting.byte_count(layout.total_bytes), ", ".join(memory))
    parts = [f"computing {formatting.duration(layout.time.compute_ns)}"]
    parts += [
        f"{name} {formatting.duration(value)}"
        for field, name in _PARTS.items()
        if (value := getattr(layout.time, field))
    ]
    yield Fact("Step", formatting.duration(layout.step_ns), ", ".join(parts))
    longest = formatting.duration(layout.step_without_overlap_ns)
    if layout.step_without_overlap_ns > layout.step_ns:
        yield Fact("No overlap", longest, "if gradients and parameters waited for each other")
    speed = formatting.quantity(layout.tokens_per_s, "tokens/s", 4)
    yield Fact("Speed", speed, f"MFU {formatting.percent(layout.mfu)}")


def _transfers_table(transfers: tuple[PlannedTransfer, ...]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("Sent by one GPU in a step", overflow="fold")
    table.add_column("Collective", no_wrap=True)
    for name in ("Ranks", "Calls", "Bytes", "Time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("Overlaps with", overflow="fold")
    for row in transfers:
        table.add_row(
            row.what,
            row.kind,
            f"{row.ranks} ({row.group})",
            f"{row.calls:,}",
            formatting.byte_count(row.total_bytes),
            formatting.duration(row.time_ns),
            row.overlapped or "nothing",
        )
    return table


def _notes(plan: TrainingPlan) -> Iterator[str]:
    if plan.counted == "executed":
        yield (
            "Products and attention run as large ones do, other operators as fast as memory "
            "(memory-bound): small shapes and launches make a real step longer. --mfu or --capture "
            "takes what was reached."
        )
    yield (
        "What overlaps costs the multiprocessors that collectives within a node take (SM "
        "contention), and nothing else, as far as computing is long enough."
    )
