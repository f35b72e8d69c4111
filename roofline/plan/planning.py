"""From a model, a training job and a cluster to the layouts that fit, fastest first."""

from collections.abc import Iterable
from dataclasses import asdict

from gpuprof.roofline.plan.cluster import PlannedCluster
from gpuprof.roofline.plan.decoder import DecoderShape
from gpuprof.roofline.plan.layout import (
    LayoutChoices,
    ParallelLayout,
    TrainingJob,
    possible_layouts,
)
from gpuprof.roofline.plan.memory import stage_memory
from gpuprof.roofline.plan.step_time import model_flops_per_step, slowest_stage
from gpuprof.roofline.plan_figures import PlannedLayout, PlannedMemory, TrainingPlan


def plan_training(
    decoder: DecoderShape, job: TrainingJob, cluster: PlannedCluster, choices: LayoutChoices
) -> TrainingPlan:
    """All layouts of `choices` that the model and the batch allow, those that fit ranked by time.

    Raises `ValueError` where they allow none.
    """
    tried = fitting = 0
    smallest: tuple[PlannedMemory, ParallelLayout] | None = None
    best: dict[tuple[int, ...], PlannedLayout] = {}
    for layout in possible_layouts(decoder, job, cluster.gpus, cluster.gpus_per_node, choices):
        tried += 1
        memory = largest_memory(decoder, job, layout)
        if smallest is None or memory.total_bytes < smallest[0].total_bytes:
            smallest = memory, layout
        if memory.total_bytes > cluster.usable_bytes:
            continue
        fitting += 1
        planned = planned_layout(decoder, job, cluster, layout, memory)
        key = (layout.tensor, layout.pipeline, layout.expert, layout.zero)
        if key not in best or _order(planned) < _order(best[key]):
            best[key] = planned
    if smallest is None:
        raise ValueError(
            f"no layout divides {decoder.layers} layers, {decoder.heads} heads and a batch of "
            f"{job.batch} sequences over {cluster.gpus} GPUs"
        )
    return TrainingPlan(
        parameters=decoder.parameters,
        multiplied=decoder.multiplied,
        gpus=cluster.gpus,
        device=cluster.device,
        memory_bytes=cluster.memory_bytes,
        usable_bytes=cluster.usable_bytes,
        flops_per_s=cluster.compute.products,
        rate_basis=cluster.compute.basis,
        counted=cluster.compute.counted,
        link_bytes_per_s=cluster.link_bytes_per_s,
        link_basis=cluster.link_basis,
        network_bytes_per_s=cluster.network_bytes_per_s,
        layouts=tuple(sorted(best.values(), key=_order)),
        tried=tried,
        fitting=fitting,
        smallest=None if best else planned_layout(decoder, job, cluster, smallest[1], smallest[0]),
    )


def largest_memory(
    decoder: DecoderShape, job: TrainingJob, layout: ParallelLayout
) -> PlannedMemory:
    """Memory of the pipeline stage that needs most: the first keeps most activations, the last has
    the logits."""
    stages: Iterable[int] = {0, layout.pipeline - 1}
    candidates = [stage_memory(decoder, job, layout, stage) for stage in stages]
    return max(candidates, key=lambda memory: memory.total_bytes)


def planned_layout(
    decoder: DecoderShape,
    job: TrainingJob,
    cluster: PlannedCluster,
    layout: ParallelLayout,
    memory: PlannedMemory,
) -> PlannedLayout:
    """`layout` with its memory and its time."""
    stage = slowest_stage(decoder, job, layout, cluster)
    step_ns = stage.time.step_ns
    flops_per_s = model_flops_per_step(decoder, job) / step_ns * 1e9 / cluster.gpus
    peak = cluster.compute.peak
    return PlannedLayout(
        **asdict(layout),
        memory=memory,
        total_bytes=memory.total_bytes,
        fits=memory.total_bytes <= cluster.usable_bytes,
        transfers=stage.transfers,
        time=stage.time,
        step_ns=step_ns,
        step_without_overlap_ns=stage.without_overlap_ns,
        tokens_per_s=job.sequence * job.batch / step_ns * 1e9,
        mfu=None if peak is None else flops_per_s / peak,
    )


def _order(planned: PlannedLayout) -> tuple[int, int]:
    return planned.step_ns, planned.total_bytes
