"""`gpuprof mfu`."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.amounts import amount, seconds, whole
from gpuprof.profiler.json_output import add_json, write_json
from gpuprof.reports.json_answers.schemas import MFU, MFU_CAPTURE, JsonSchema

if TYPE_CHECKING:
    import msgspec
    from rich.table import Table

    from gpuprof.roofline.utilization.closed_form_answer import TransformerRun

    # Tables and notes for people, a struct for programs.
    _Answer: TypeAlias = tuple[list[Table], tuple[str, ...], msgspec.Struct]

# By how much --params may be below what the capture counts: tied parameters count once or twice.
_FEWER = 2
_PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4", "int4")


class MfuCommand:
    """Work out MFU and MBU of a transformer in closed form, without running it.

    6 N + 12 L H Q T FLOPs a token in training (PaLM), a third of it in
    inference. With a capture, compare the formula with the FLOPs that its
    operators count, and explain the difference line by line. Amounts may end in
    k, M, B (or G), T, P; times in s, ms, us.
    """

    name = "mfu"
    summary = "MFU and MBU from a model's dimensions, compared with a capture"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add this command's arguments."""
        add = parser.add_argument
        add("capture", nargs="?", type=Path, help="capture to compare the formula with")
        kind = parser.add_mutually_exclusive_group()
        for mode, text in (
            ("training", "forward and backward pass (default)"),
            ("inference", "forward pass only, such as a prefill"),
            ("decode", "one token a sequence, from a cache of --sequence tokens"),
        ):
            kind.add_argument(f"--{mode}", dest="mode", action="store_const", const=mode, help=text)
        parser.set_defaults(mode="training")
        model = parser.add_argument_group("model")
        model.add_argument("--params", type=whole, metavar="N", help="all parameters")
        model.add_argument(
            "--active-params", type=whole, metavar="N", help="parameters active per token (MoE)"
        )
        model.add_argument("--experts", type=whole, metavar="E", help="experts a layer (MoE)")
        model.add_argument(
            "--experts-per-token", type=whole, metavar="K", help="experts active per token"
        )
        model.add_argument(
            "--lora-params",
            type=whole,
            metavar="N",
            help="parameters of adapters; the rest is frozen",
        )
        model.add_argument("--layers", type=whole, metavar="L", help="number of layers")
        model.add_argument("--hidden", type=whole, metavar="H", help="width of the model")
        model.add_argument("--heads", type=whole, metavar="A", help="query heads")
        model.add_argument("--kv-heads", type=whole, metavar="A", help="key heads (GQA)")
        model.add_argument(
            "--head-dim", type=whole, metavar="D", help="size of a head (default: H / A)"
        )
        model.add_argument(
            "--sequence", type=whole, metavar="S", help="tokens a sequence, or in the cache"
        )
        model.add_argument(
            "--window", type=whole, metavar="W", help="sliding-window length, tokens"
        )
        model.add_argument(
            "--vocabulary", type=whole, metavar="V", help="its size; leaves the embedding out of N"
        )
        model.add_argument(
            "--tied", action="store_true", help="the embedding is the output head too"
        )
        model.add_argument(
            "--recompute", action="store_true", help="full activation checkpointing; adds HFU"
        )
        speed = parser.add_argument_group("speed")
        speed.add_argument(
            "--tokens-per-second", type=amount, metavar="X", help="tokens per second, all GPUs"
        )
        speed.add_argument("--step-time", type=seconds, metavar="TIME", help="time of one step")
        speed.add_argument("--batch", type=whole, metavar="B", help="sequences a step, all GPUs")
        speed.add_argument(
            "--tokens", type=whole, metavar="D", help="tokens a step, all GPUs (default: B S)"
        )
        speed.add_argument("--gpus", type=whole, metavar="N", default=1, help="number of GPUs")
        speed.add_argument(
            "--kv-bytes", type=whole, metavar="BYTES", help="keys and values read in a step"
        )
        peaks = parser.add_argument_group("peaks of one GPU")
        peaks.add_argument("--device", metavar="NAME", help='such as "H100 SXM", "A100-SXM4-80GB"')
        peaks.add_argument(
            "--peak", type=amount, metavar="FLOPS", help="FLOP/s, in place of --device"
        )
        peaks.add_argument(
            "--bandwidth", type=amount, metavar="BYTES", help="bytes/s, in place of --device"
        )
        peaks.add_argument(
            "--precision", default="bf16", choices=_PRECISIONS, help="precision of products (bf16)"
        )
        peaks.add_argument(
            "--weight-bits",
            type=whole,
            metavar="BITS",
            help="bits per stored weight, if not those of --precision",
        )
        add_json(parser, _schema)

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CommandError` and `CaptureError`."""
        from gpuprof.reports.console.terminal import stdout

        if arguments.capture is None:
            tables, notes, figures = _answer(arguments)
        else:
            tables, notes, figures = _beside_capture(arguments)
        if arguments.json:
            write_json(_schema(arguments), figures)
            return 0
        console = stdout()
        for table in tables:
            console.print(table)
        for note in notes:
            console.print(note, style="dim")
        return 0


def _schema(arguments: argparse.Namespace) -> JsonSchema:
    return MFU if arguments.capture is None else MFU_CAPTURE


def _answer(arguments: argparse.Namespace) -> "_Answer":
    import msgspec

    from gpuprof.reports.closed_form import answer_facts, answer_notes
    from gpuprof.reports.json_answers.of_machines import MfuAnswer
    from gpuprof.reports.terminal import facts_table
    from gpuprof.roofline.utilization.closed_form_answer import closed_form_answer

    run = transformer_run(arguments)
    found = closed_form_answer(run)
    notes = tuple(answer_notes(run, found))
    answer = MfuAnswer(**msgspec.structs.asdict(found), notes=notes)
    return [facts_table(answer_facts(found))], notes, answer


def _beside_capture(arguments: argparse.Namespace) -> "_Answer":
    """The closed form of the options, or of the capture's own model, beside the capture's count.

    Raises `CaptureError`, and `CommandError` where neither knows the parameters, or the formula
    does not apply to what ran.
    """
    import msgspec

    from gpuprof.collectors import storage
    from gpuprof.reports.closed_form import closed_form_table
    from gpuprof.reports.terminal import facts_table
    from gpuprof.reports.utilization import utilization_facts
    from gpuprof.roofline.analyze import analyze
    from gpuprof.roofline.utilization.closed_form import parameter_count, with_attention
    from gpuprof.roofline.utilization.model_flops import model_flops

    path: Path = arguments.capture
    capture = storage.load(path)
    capture = capture.rank(capture.manifest.ranks[0])
    (process,) = capture.processes
    size = None
    if arguments.params is not None:
        own = None if process.model is None else parameter_count(process.model)
        if own is not None and _FEWER * arguments.params < own:
            raise _misfit(
                f"--params {arguments.params:,}: the model in {path} has {own:,} parameters; "
                "leave --params out, or give all of them"
            )
        run = transformer_run(arguments, timed=False)
        size = run.size
        process = msgspec.structs.replace(process, model=run.as_parameters)
    if process.model is None:
        raise CommandError(
            f"{path} does not hold the model's parameters; give --params", exit_code=2
        )
    analysis = analyze(capture.with_processes((process,)))
    form = analysis.closed_form
    if form is None and size is not None:
        raise _misfit(
            f"--params {arguments.params:,}: the products in {path} are not those of a model with "
            "so many parameters"
        )
    if form is None:
        raise CommandError(
            f"{path}: most of the step is not products with the parameters of "
            f"{process.model.name}, so the closed form does not apply"
        )
    if size is not None and size.attention_width is not None:
        training = form.formula.startswith("6")
        attention = model_flops(size, "training" if training else "inference").attention
        form = with_attention(form, attention * form.tokens)
    others = [fact for fact in utilization_facts(analysis) if fact.label != "Closed form"]
    tables = [closed_form_table(form, analysis.utilization), facts_table(others)]
    return tables, (), form


def transformer_run(arguments: argparse.Namespace, *, timed: bool = True) -> "TransformerRun":
    """The run that the options describe; without its speed and peaks unless `timed`.

    Raises `CommandError` (exit 2) where the options do not fit together.
    """
    from gpuprof.roofline.utilization.closed_form_answer import TransformerRun

    if arguments.params is None:
        raise _misfit("give --params, the number of parameters of the model")
    _refuse_misfits(arguments)
    run = TransformerRun(
        mode=arguments.mode,
        parameters=arguments.params,
        active_parameters=arguments.active_params,
        experts=arguments.experts,
        experts_per_token=arguments.experts_per_token,
        adapter_parameters=arguments.lora_params,
        layers=arguments.layers,
        hidden=arguments.hidden,
        heads=arguments.heads,
        key_heads=arguments.kv_heads,
        head_size=arguments.head_dim,
        sequence=arguments.sequence,
        window=arguments.window,
        vocabulary=arguments.vocabulary,
        tied=arguments.tied,
        recompute=arguments.recompute,
        tokens_per_s=arguments.tokens_per_second,
        step_s=arguments.step_time,
        batch=arguments.batch,
        tokens=arguments.tokens,
        gpus=arguments.gpus,
        key_value_bytes=arguments.kv_bytes,
        precision=arguments.precision,
        weight_bits=arguments.weight_bits,
    )
    if run.size.multiplied <= 0:
        raise _misfit("the embedding has more parameters than the model: check --params")
    if not timed:
        return run
    if run.recompute and run.mode != "training":
        raise _misfit("--recompute is for training; inference keeps no activations")
    if run.tokens_per_s is not None and run.step_s is not None:
        raise _misfit("give --tokens-per-second or --step-time, not both")
    if run.step_s is not None and run.step_tokens is None:
        needed = "--batch" if run.mode == "decode" else "--tokens, or --batch with --sequence"
        raise _misfit(f"--step-time needs {needed}")
    peak, bandwidth, label = _peaks(arguments)
    return replace(run, peak=peak, bandwidth=bandwidth, peak_label=label)


def _refuse_misfits(arguments: argparse.Namespace) -> None:
    given = arguments
    if given.vocabulary is not None and not given.tied and given.hidden is None:
        raise _misfit("--vocabulary needs --hidden: the embedding has V x H parameters")
    if given.active_params is not None and given.active_params > given.params:
        raise _misfit("--active-params is more than --params, the parameters of all experts")
    if (given.experts is None) != (given.experts_per_token is None):
        raise _misfit("--experts and --experts-per-token are given together")
    if given.experts is not None and given.experts <= given.experts_per_token:
        raise _misfit("--experts-per-token must be less than --experts")
    if given.heads is not None and given.head_dim is None and given.hidden is not None:
        if given.hidden % given.heads:
            raise _misfit("--hidden is not a multiple of --heads: give --head-dim")
    if given.kv_heads is not None and given.heads is None:
        raise _misfit("--kv-heads needs --heads")


def _peaks(arguments: argparse.Namespace) -> tuple[float | None, float | None, str]:
    """FLOP/s and bytes/s of one GPU, and where the first comes from."""
    from gpuprof.profiler.machine.ceiling_sources import find_named
    from gpuprof.roofline.machine.ceilings import Roof, datasheet_ceilings

    name, precision = arguments.device, arguments.precision
    peak, bandwidth = arguments.peak, arguments.bandwidth
    label = "" if peak is None else f"{precision} peak as given"
    if name is None:
        return peak, bandwidth, label
    lookup = find_named(name)
    if lookup.spec is None:
        raise _misfit(f"--device: {lookup.reason}; give --peak and --bandwidth")
    roof = Roof(datasheet_ceilings(lookup.spec), "datasheet")
    compute, memory = roof.compute_rate("matmul", precision), roof.memory_rate()
    if peak is None:
        if compute is None:
            raise _misfit(f"--precision {precision}: no peak is known for {lookup.spec.name}")
        peak, label = compute.rate, f"{compute.label}, {lookup.spec.name}"
    if bandwidth is None and memory is not None:
        bandwidth = memory.rate
    return peak, bandwidth, label


def _misfit(problem: str) -> CommandError:
    return CommandError(problem, exit_code=2)
