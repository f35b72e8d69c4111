"""`gpuprof plan`."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpuprof.collectors.errors import CaptureError, CommandError, problem_of
from gpuprof.collectors.files.stored_json import decode_stored, stored_content
from gpuprof.profiler.amounts import amount, share, whole, wholes
from gpuprof.profiler.json_output import add_json, write_json
from gpuprof.reports.json_answers.schemas import PLAN

if TYPE_CHECKING:
    from gpuprof.roofline.plan.cluster import PlannedCluster
    from gpuprof.roofline.plan.decoder import DecoderShape
    from gpuprof.roofline.plan.layout import LayoutChoices, TrainingJob

_Value = TypeVar("_Value")
_PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
# What CUDA, NCCL's buffers and fragments of the allocator take.
_RESERVE = 0.1


class PlanCommand:
    """Plan the training of a decoder on a cluster: what fits, and how fast it is.

    Memory, communication and step time of a GPU for tensor, pipeline, data and
    expert parallelism and ZeRO 1 to 3, worked out from formulas (docs/plan.md),
    ranked by step time. Nothing is run. Amounts may end in k, M, B (or G), T, P.
    """

    name = "plan"
    summary = "memory, communication and step time of layouts over many GPUs"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add this command's arguments."""
        add = parser.add_argument
        add("config", nargs="?", type=Path, help="config.json of a Hugging Face model")
        _add_model(parser.add_argument_group("model, in place of config.json"))
        _add_job(parser.add_argument_group("training"))
        _add_cluster(parser.add_argument_group("cluster"))
        _add_layouts(parser.add_argument_group("layouts to try (default: all that fit the model)"))
        add("--top", type=whole, metavar="N", default=10, help="layouts to show (10)")
        add_json(parser, PLAN)

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`: 1 where no layout fits. Raises `CommandError` and `CaptureError`."""
        from gpuprof.reports.console.terminal import stdout
        from gpuprof.reports.plan import render_plan
        from gpuprof.roofline.plan.planning import plan_training

        decoder, job = _decoder(arguments), _job(arguments)
        cluster = _cluster(arguments)
        try:
            plan = plan_training(decoder, job, cluster, _choices(arguments))
        except ValueError as error:
            raise CommandError(str(error), exit_code=2) from None
        if arguments.json:
            write_json(PLAN, plan)
        else:
            render_plan(plan, stdout(), arguments.top)
        return 0 if plan.layouts else 1


def _add_model(model: argparse._ArgumentGroup) -> None:
    add = model.add_argument
    add("--layers", type=whole, metavar="L", help="number of layers")
    add("--hidden", type=whole, metavar="H", help="width of the model")
    add("--heads", type=whole, metavar="A", help="query heads")
    add("--kv-heads", type=whole, metavar="A", help="key heads (default: as many)")
    add("--head-dim", type=whole, metavar="D", help="size of a head (default: H / A)")
    add("--ffn", type=whole, metavar="F", help="inner width of the MLP, or of one expert")
    add("--vocabulary", type=whole, metavar="V", help="size of the vocabulary")
    add("--experts", type=whole, metavar="E", default=1, help="experts a layer (MoE)")
    add("--experts-per-token", type=whole, metavar="K", default=1, help="experts active per token")
    add("--tied", action="store_true", help="the embedding is the output head too")
    add("--no-gate", action="store_true", help="an MLP of two matrices, not of three (SwiGLU)")
    add("--dropout", action="store_true", help="masks of dropout are kept for the backward pass")


def _add_job(job: argparse._ArgumentGroup) -> None:
    add = job.add_argument
    add("--sequence", type=whole, metavar="S", required=True, help="tokens a sequence")
    add("--batch", type=whole, metavar="B", required=True, help="sequences a step, all GPUs")
    add("--precision", default="bf16", choices=_PRECISIONS, help="precision of products (bf16)")
    add("--parameter-bytes", type=whole, metavar="N", default=2, help="of one parameter (2)")
    add("--gradient-bytes", type=whole, metavar="N", default=2, help="of one gradient (2)")
    add(
        "--optimizer-bytes",
        type=whole,
        metavar="N",
        default=12,
        help="of the optimizer's states of one parameter (12: Adam, fp32 parameters)",
    )
    add("--activation-bytes", type=whole, metavar="N", default=2, help="of one activation (2)")
    add("--unfused-attention", action="store_true", help="attention's scores are kept (no flash)")


def _add_cluster(cluster: argparse._ArgumentGroup) -> None:
    add = cluster.add_argument
    add("--device", metavar="NAME", help='such as "H100 SXM", "A100-SXM4-80GB"')
    add(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="rates measured by gpuprof calibrate --json, in place of the datasheet's",
    )
    add(
        "--links",
        type=Path,
        metavar="FILE",
        help="collectives measured by torchrun ... gpuprof calibrate --json",
    )
    add("--nodes", type=whole, metavar="N", default=1, help="number of nodes (1)")
    add("--gpus-per-node", type=whole, metavar="N", default=8, help="GPUs of a node (8)")
    add("--memory", type=amount, metavar="BYTES", help="memory of a GPU")
    add(
        "--reserve",
        type=share,
        metavar="SHARE",
        default=_RESERVE,
        help="of it that layouts leave free (10%%)",
    )
    add(
        "--link-bandwidth",
        type=amount,
        metavar="BYTES",
        help="bus bandwidth of collectives between GPUs of a node, bytes/s",
    )
    add(
        "--network-bandwidth",
        type=amount,
        metavar="BYTES",
        help="what one GPU sends to other nodes, bytes/s (400 Gbit/s: 50G)",
    )
    add("--mfu", type=share, metavar="SHARE", help="what one GPU reaches alone, as measured")
    add("--capture", type=Path, metavar="CAPTURE", help="take --mfu from this capture")


def _add_layouts(layouts: argparse._ArgumentGroup) -> None:
    add = layouts.add_argument
    add("--tp", type=wholes, metavar="T,...", help="tensor-parallel degrees")
    add("--pp", type=wholes, metavar="P,...", help="pipeline stages")
    add("--ep", type=wholes, metavar="E,...", help="expert-parallel degrees")
    add("--zero", metavar="STAGE,...", help="ZeRO stages: 0 to 3")
    add("--chunks", type=wholes, metavar="V,...", help="chunks a stage (interleaved 1F1B)")
    add("--micro-batch", type=wholes, metavar="B,...", help="sequences a micro-batch")
    add(
        "--checkpointing",
        metavar="KIND,...",
        help="none, selective (attention's scores), full",
    )
    add(
        "--no-sequence-parallel",
        action="store_true",
        help="norms and dropouts on each tensor-parallel rank whole",
    )


def _decoder(arguments: argparse.Namespace) -> "DecoderShape":
    """The model of config.json or of the options. Raises `CommandError` (exit 2)."""
    from gpuprof.roofline.plan.decoder import DecoderShape

    if arguments.config is not None:
        if arguments.layers is not None or arguments.hidden is not None:
            raise _misfit("give config.json or the model's dimensions, not both")
        return _decoder_of_file(arguments.config)
    needed = ("layers", "hidden", "heads", "ffn", "vocabulary")
    missing = [f"--{name}" for name in needed if getattr(arguments, name) is None]
    if missing:
        raise _misfit(f"give config.json, or {', '.join(missing)}")
    if arguments.head_dim is None and arguments.hidden % arguments.heads:
        raise _misfit("--hidden is not a multiple of --heads: give --head-dim")
    if arguments.experts_per_token > arguments.experts:
        raise _misfit("--experts-per-token is more than --experts")
    return DecoderShape(
        layers=arguments.layers,
        hidden=arguments.hidden,
        heads=arguments.heads,
        key_heads=arguments.kv_heads or arguments.heads,
        head_size=arguments.head_dim or arguments.hidden // arguments.heads,
        inner=arguments.ffn,
        vocabulary=arguments.vocabulary,
        gated=not arguments.no_gate,
        experts=arguments.experts,
        experts_per_token=arguments.experts_per_token,
        tied=arguments.tied,
        dropout=arguments.dropout,
    )


def _decoder_of_file(path: Path) -> "DecoderShape":
    from gpuprof.roofline.plan.families import decoder_of_config

    try:
        return decoder_of_config(decode_stored(stored_content(path), dict[str, object]))
    except CaptureError as error:
        raise _misfit(str(error)) from None
    # msgspec's errors are ValueErrors too.
    except ValueError as error:
        raise _misfit(f"{path}: {problem_of(error)}") from None


def _job(arguments: argparse.Namespace) -> "TrainingJob":
    from gpuprof.roofline.plan.layout import TrainingJob

    return TrainingJob(
        sequence=arguments.sequence,
        batch=arguments.batch,
        parameter_bytes=arguments.parameter_bytes,
        gradient_bytes=arguments.gradient_bytes,
        optimizer_bytes=arguments.optimizer_bytes,
        activation_bytes=arguments.activation_bytes,
        fused_attention=not arguments.unfused_attention,
    )


def _choices(arguments: argparse.Namespace) -> "LayoutChoices":
    from gpuprof.roofline.plan.layout import CHECKPOINTING, ZERO_STAGES, LayoutChoices

    stages = _named(arguments.zero, "--zero", {str(stage): stage for stage in ZERO_STAGES})
    kinds = _named(arguments.checkpointing, "--checkpointing", {k: k for k in CHECKPOINTING})
    every = LayoutChoices()
    return LayoutChoices(
        tensor=arguments.tp,
        pipeline=arguments.pp,
        expert=arguments.ep,
        zero=stages or every.zero,
        chunks=arguments.chunks or every.chunks,
        micro_batch=arguments.micro_batch or every.micro_batch,
        checkpointing=kinds or None,
        sequence_parallel=not arguments.no_sequence_parallel,
    )


def _named(text: str | None, option: str, known: Mapping[str, _Value]) -> tuple[_Value, ...]:
    """What the words of a list apart by commas stand for; none where the option is not given."""
    words = [] if text is None else [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            raise _misfit(f"{option}: '{word}' is none of {', '.join(known)}")
    return tuple(known[word] for word in words)


def _cluster(arguments: argparse.Namespace) -> "PlannedCluster":
    """The GPUs and links of the options. Raises `CommandError` and `CaptureError`."""
    from gpuprof.profiler.captures import load_analysis
    from gpuprof.profiler.machine.ceiling_sources import (
        calibrated_links,
        calibrated_roof,
        datasheet_roof,
    )
    from gpuprof.roofline.plan.cluster import PlannedCluster
    from gpuprof.roofline.plan.rates import (
        compute_rate,
        link_rate,
        measured_link_rate,
        measured_rate,
        rate_beside_collectives,
        reached_memory_rates,
    )

    analysis = None if arguments.capture is None else load_analysis(arguments.capture)
    if arguments.calibration is not None:
        found = calibrated_roof(arguments.calibration)
    elif arguments.device is not None:
        found = datasheet_roof(arguments.device)
    elif analysis is not None and analysis.device is not None:
        found = datasheet_roof(analysis.device.name)
    else:
        raise _misfit("give --device, --calibration or --capture")
    reached = arguments.mfu
    basis = "MFU as given"
    if reached is None and analysis is not None:
        if analysis.utilization is None or analysis.utilization.mfu is None:
            raise CommandError(f"{arguments.capture}: no MFU is known; give --mfu", exit_code=2)
        reached, basis = analysis.utilization.mfu, f"MFU of {arguments.capture.name}"
    compute = (
        compute_rate(found.roof, arguments.precision, arguments.sequence)
        if reached is None
        else measured_rate(found.roof, arguments.precision, reached, basis)
    )
    memory_rates = reached_memory_rates(found.roof)
    memory = arguments.memory or found.memory_bytes
    if compute is None or memory_rates is None:
        raise _misfit(f"{found.name}: no peak is known for {arguments.precision}")
    if memory is None:
        raise _misfit(f"{found.name} comes with more than one size of memory: give --memory")
    link, link_basis = arguments.link_bandwidth, "as given"
    measured = None if arguments.links is None else calibrated_links(arguments.links)
    if link is None and arguments.gpus_per_node > 1:
        known = None if measured is None else measured_link_rate(measured)
        known = link_rate(found.roof) if known is None else known
        if known is None:
            raise _misfit(f"{found.name}: no link between GPUs is known; give --link-bandwidth")
        link, link_basis = known
    if arguments.nodes > 1 and arguments.network_bandwidth is None:
        raise _misfit("several nodes need --network-bandwidth, what one GPU sends to other nodes")
    return PlannedCluster(
        device=found.name,
        nodes=arguments.nodes,
        gpus_per_node=arguments.gpus_per_node,
        memory_bytes=int(memory),
        usable_bytes=int(memory * (1 - arguments.reserve)),
        compute=compute,
        memory_bytes_per_s=memory_rates[0],
        optimizer_bytes_per_s=memory_rates[1],
        link_bytes_per_s=link,
        link_basis=link_basis,
        kept_beside_collectives=rate_beside_collectives(found.roof),
        network_bytes_per_s=arguments.network_bandwidth,
        measured=measured,
    )


def _misfit(problem: str) -> CommandError:
    return CommandError(problem, exit_code=2)
