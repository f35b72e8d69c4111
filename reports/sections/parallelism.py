"""How the job is divided over ranks, and what its communication costs."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Fact, Facts, Paragraph, Table
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.parallelism_figures import (
    DataParallelism,
    Exchange,
    ExpertParallelism,
    ExpertRank,
    GroupExchanges,
    Parallelism,
    PipelineStage,
    Pipelining,
)

# Of a step: what costs less is no reason to change anything.
_WORTH_CHANGING: Final = 0.02
# The busiest rank's expert work over the mean.
_UNEVEN: Final = 1.1
# Of a bubble over the least: stages that differ, or communication that is not hidden.
_LARGE_BUBBLE: Final = 1.2
_SUMS: Final = (
    Column("Message", "number"),
    Column("Backward pass done", "number"),
    Column("Time", "number"),
    Column("Exposed", "number"),
)
_EXCHANGES: Final = (
    Column("Pass"),
    Column("Collective"),
    Column("Calls", "number"),
    Column("Bytes", "number"),
    Column("Time", "number"),
    Column("Exposed", "number"),
    Column("Mostly hidden", "number"),
)
_STAGES: Final = (Column("Rank", "number"), Column("Works", "number"), Column("Waits", "number"))
_EXPERTS: Final = (
    Column("Rank", "number"),
    Column("Bytes", "number"),
    Column("Expert work", "number"),
)


def _summary(analysis: Analysis) -> Sequence[Block]:
    found = analysis.parallelism
    if found is None:
        return ()
    return (Facts(tuple(_facts(found))),)


def _facts(found: Parallelism) -> Iterator[Fact]:
    for data in found.data:
        yield _exposed("Gradients", data.exposed_ns, data.duration_ns, _buckets_note(data))
    for name, groups in (("Sharded", found.sharded), ("Tensor", found.tensor)):
        for group in groups:
            exposed = sum(each.exposed_ns for each in group.exchanges)
            whole = sum(each.duration_ns for each in group.exchanges)
            yield _exposed(name, exposed, whole, _exchanges_note(group))
    if found.pipeline is not None:
        bubble = formatting.percent(found.pipeline.bubble)
        yield Fact("Pipeline", f"bubble {bubble}", _schedule_note(found.pipeline))
    for experts in found.experts:
        if experts.imbalance is not None:
            most = f"{experts.imbalance:.2f} times the mean"
            note = f"expert work of the busiest of {len(experts.ranks)} ranks"
            yield Fact("Experts", most, note)


def _exposed(label: str, exposed_ns: int, duration_ns: int, note: str) -> Fact:
    value = f"{formatting.duration(exposed_ns)} exposed"
    return Fact(label, value, f"of {formatting.duration(duration_ns)} a step; {note}")


def _buckets_note(data: DataParallelism) -> str:
    buckets = formatting.counted(len(data.buckets), _one_sum(data))
    sizes = [bucket.message_bytes for bucket in data.buckets]
    total = _total(sizes)
    size = "" if total is None else f" of {formatting.byte_count(total)} in all"
    return f"{buckets}{size}{_over(data.ranks)}"


def _one_sum(data: DataParallelism) -> str:
    return "bucket" if data.by_ddp else "all-reduce"


def _exchanges_note(group: GroupExchanges) -> str:
    calls = ", ".join(f"{each.calls} {each.collective} {each.phase}" for each in group.exchanges)
    layers = (
        "" if group.layers is None else f", {formatting.counted(group.layers, 'call')} of a layer"
    )
    return f"{calls}{layers}{_over(group.ranks)}"


def _schedule_note(pipeline: Pipelining) -> str:
    stages = formatting.counted(len(pipeline.stages), "stage")
    if pipeline.least_bubble is None:
        return stages
    chunks = "" if pipeline.chunks == 1 else f", {pipeline.chunks} chunks each"
    least = formatting.percent(pipeline.least_bubble)
    return f"{stages}{chunks}, {pipeline.micro_batches} micro-batches: {least} if all were alike"


def _over(ranks: int | None) -> str:
    return "" if ranks is None else f" over {formatting.counted(ranks, 'rank')}"


def _total(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _body(analysis: Analysis) -> Sequence[Block]:
    found, step_ns = analysis.parallelism, analysis.steps.length_ns
    if found is None:
        return ()
    blocks: list[Block] = []
    for data in found.data:
        blocks += _of_data(data, step_ns)
    for group in found.sharded:
        blocks += _of_sharded(group, step_ns)
    for group in found.tensor:
        blocks += _of_tensor(group)
    if found.pipeline is not None:
        blocks += _of_pipeline(found.pipeline)
    for experts in found.experts:
        blocks += _of_experts(experts)
    return blocks


def _of_data(data: DataParallelism, step_ns: int | None) -> Iterator[Block]:
    yield Paragraph(
        f"Data parallel: gradients are summed{_over(data.ranks)}. {_one_sum(data).capitalize()}s "
        "can overlap with what is left of the backward pass when they begin. Each row is of the "
        "rank that waited least in it: what others wait for ranks that come later is left out."
    )
    rows = tuple(
        (
            str(number),
            formatting.byte_count(bucket.message_bytes),
            formatting.percent(bucket.backward_done),
            formatting.duration(bucket.duration_ns),
            formatting.duration(bucket.exposed_ns),
        )
        for number, bucket in enumerate(data.buckets, start=1)
    )
    yield Table((Column(_one_sum(data).capitalize(), "number"), *_SUMS), rows)
    advice = _bucket_advice if data.by_ddp else _sums_advice
    yield from (Paragraph(sentence) for sentence in advice(data, step_ns))


def _sums_advice(data: DataParallelism, step_ns: int | None) -> Iterator[str]:
    if _is_worth(data.exposed_ns, step_ns):
        yield (
            f"{formatting.duration(data.exposed_ns)} a step are exposed. Fewer and larger "
            "all-reduces that begin during the backward pass could be hidden by it, as the buckets "
            "of DistributedDataParallel are."
        )


def _bucket_advice(data: DataParallelism, step_ns: int | None) -> Iterator[str]:
    last = data.buckets[-1]
    before_ns = data.exposed_ns - last.exposed_ns
    if _is_worth(last.exposed_ns, step_ns) and last.message_bytes:
        yield (
            "Nothing is left to hide the last bucket, "
            f"{formatting.byte_count(last.message_bytes)}: "
            f"{formatting.duration(last.exposed_ns)} a step. A smaller bucket_cap_mb makes it "
            "smaller, and all others too."
        )
    if _is_worth(before_ns, step_ns):
        fewer = " gradients in bf16 (a communication hook), or" if data.dtype == "Float" else ""
        yield (
            f"{formatting.duration(before_ns)} a step of earlier buckets are exposed: the backward "
            "pass waits for its host meanwhile, or is shorter than they are. In the second case "
            f"fewer bytes help:{fewer} no_sync() over several micro-batches."
        )


def _of_sharded(group: GroupExchanges, step_ns: int | None) -> Iterator[Block]:
    yield Paragraph(
        f"Sharded parameters{_over(group.ranks)}: layers are gathered before they compute, and "
        "gradients scattered after. A gather is hidden where it runs beside the layer before."
    )
    yield Table(_EXCHANGES, tuple(map(_exchange_row, group.exchanges)))
    gathers = [each for each in group.exchanges if each.collective == "all-gather"]
    exposed_ns = sum(each.exposed_ns for each in gathers)
    calls, hidden = (sum(getattr(each, name) for each in gathers) for name in ("calls", "hidden"))
    if _is_worth(exposed_ns, step_ns):
        yield Paragraph(
            f"Computing waits {formatting.duration(exposed_ns)} a step for gathers; {hidden} of "
            f"{calls} are mostly hidden. set_modules_to_forward_prefetch and "
            "set_modules_to_backward_prefetch start them earlier; larger units, or "
            "reshard_after_forward=False where memory allows, make them fewer."
        )


def _of_tensor(group: GroupExchanges) -> Iterator[Block]:
    layers = group.layers
    each = [
        f"{exchange.calls / layers:.3g} {exchange.collective} {exchange.phase}"
        for exchange in group.exchanges
        if layers
    ]
    of_layers = f" For each of {layers} calls of a layer: {', '.join(each)}." if layers else ""
    yield Paragraph(
        f"Tensor parallel{_over(group.ranks)}: activations are exchanged within each pass, and "
        f"what follows waits for them.{of_layers}"
    )
    yield Table(_EXCHANGES, tuple(map(_exchange_row, group.exchanges)))


def _exchange_row(each: Exchange) -> tuple[str, ...]:
    return (
        each.phase,
        each.collective,
        formatting.count(each.calls),
        formatting.byte_count(each.total_bytes),
        formatting.duration(each.duration_ns),
        formatting.duration(each.exposed_ns),
        f"{each.hidden} of {each.calls}",
    )


def _of_pipeline(pipeline: Pipelining) -> Iterator[Block]:
    yield Paragraph(
        f"Pipeline of {len(pipeline.stages)} stages: they wait for each other "
        f"{formatting.percent(pipeline.bubble)} of their time ({_schedule_note(pipeline)}). "
        "Waiting is what is exposed of sends and receives; the optimizer's work is left out."
    )
    yield Table(_STAGES, tuple(map(_stage_row, pipeline.stages)))
    bubble, least = pipeline.bubble, pipeline.least_bubble
    if bubble is None or least is None:
        return
    slowest = max(pipeline.stages, key=lambda stage: stage.working_ns)
    mean_ns = sum(stage.working_ns for stage in pipeline.stages) / len(pipeline.stages)
    if bubble > _LARGE_BUBBLE * least and slowest.working_ns > _UNEVEN * mean_ns:
        yield Paragraph(
            f"Rank {slowest.rank} works {slowest.working_ns / mean_ns:.2f} times the mean, and the "
            "others wait for it: layers could be divided more evenly."
        )


def _stage_row(stage: PipelineStage) -> tuple[str, ...]:
    times_ns = (stage.working_ns, stage.waiting_ns)
    return str(stage.rank), *map(formatting.duration, times_ns)


def _of_experts(experts: ExpertParallelism) -> Iterator[Block]:
    yield Paragraph(
        f"Expert parallel: {experts.calls} all-to-alls a step take tokens to their experts and "
        f"back, {formatting.duration(experts.exposed_ns)} of them exposed. Bytes are the larger of "
        "what a rank sends and gets."
    )
    yield Table(_EXPERTS, tuple(map(_expert_row, experts.ranks)))
    if experts.imbalance is not None and experts.imbalance > _UNEVEN:
        yield Paragraph(
            f"The busiest rank's experts work {experts.imbalance:.2f} times the mean: the others "
            "wait in the next all-to-all."
        )


def _expert_row(each: ExpertRank) -> tuple[str, ...]:
    sent = formatting.byte_count(each.total_bytes)
    return str(each.rank), sent, formatting.duration(each.expert_ns)


def _is_worth(cost_ns: int, step_ns: int | None) -> bool:
    return step_ns is not None and cost_ns > _WORTH_CHANGING * step_ns


SECTION = Section(
    key="parallelism",
    title=titled("Parallelism"),
    fields=("parallelism",),
    summary=_summary,
    body=_body,
)
