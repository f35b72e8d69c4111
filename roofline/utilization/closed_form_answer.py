"""What `gpuprof mfu` answers: from its options to figures, with what they rest on."""

import argparse
from dataclasses import replace
from pathlib import Path

import msgspec

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.manifest import (
    DeviceKind,
    ModelParameters,
    ParameterRole,
    ParameterShape,
)
from gpuprof.reports import formatting
from gpuprof.reports.blocks import Fact
from gpuprof.reports.figures import OVER_PEAK, is_over_peak
from gpuprof.roofline.analysis import Analysis, ClosedForm
from gpuprof.roofline.machine.ceilings import Roof, datasheet_ceilings
from gpuprof.roofline.machine.devices import find_meant
from gpuprof.roofline.utilization.model_flops import (
    Mode,
    TransformerSize,
    hardware_flops,
    key_value_bytes,
    model_flops,
    weight_bytes,
)

# Of one stored value.
_BITS = {
    **{"fp64": 64, "fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16},
    **{"fp8": 8, "int8": 8, "fp4": 4, "int4": 4},
}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one GPU. None where the options do not tell."""

    mode: Mode
    formula: str
    # N: parameters that a token is multiplied with, adapters included.
    parameters: int
    flops_per_token: int
    # With half of the attention.
    flops_per_token_causal_half: int
    # Under full activation checkpointing.
    hardware_flops_per_token: int | None = None
    tokens_per_s: float | None = None
    flops_per_s: float | None = None
    peak: float | None = None
    mfu: float | None = None
    mfu_causal_half: float | None = None
    hfu: float | None = None
    weight_bytes: int | None = None
    key_value_bytes: int | None = None
    bandwidth: float | None = None
    mbu: float | None = None
    # The peak, in words.
    peak_label: str = ""
    # What the figures rest on, as sentences.
    notes: tuple[str, ...] = ()


def answer(options: argparse.Namespace) -> Answer:
    """The closed form of `options`. Raises `CommandError` where they do not fit together."""
    size, notes = model_size(options)
    mode: Mode = options.mode
    if options.recompute and mode != "training":
        raise CommandError(
            "--recompute is of training; inference keeps no activations", exit_code=2
        )
    tokens_per_s, step_s = _speed(options)
    peak, bandwidth, label = _peaks(options)
    flops = model_flops(size, mode)
    hardware = hardware_flops(size).full if options.recompute else None
    found = Answer(
        mode=mode,
        formula=_formula(size, mode),
        parameters=size.multiplied + size.adapter_parameters,
        flops_per_token=flops.full,
        flops_per_token_causal_half=flops.causal_half,
        hardware_flops_per_token=hardware,
        tokens_per_s=tokens_per_s,
        flops_per_s=None if tokens_per_s is None else flops.full * tokens_per_s,
        peak=peak,
        mfu=_share(flops.full, tokens_per_s, peak),
        mfu_causal_half=_share(flops.causal_half, tokens_per_s, peak),
        hfu=_share(hardware, tokens_per_s, peak),
        bandwidth=bandwidth,
        peak_label=label,
        notes=(*notes, *_speed_notes(options)),
    )
    return _with_memory(found, options, size, step_s) if mode == "decode" else found


def _formula(size: TransformerSize, mode: Mode) -> str:
    """The formula in letters, with N' for the adapters' parameters."""
    if mode == "training":
        weights = "4 N + 6 N'" if size.adapter_parameters else "6 N"
        attention, what = " + 12 L H Q T", "forward and backward"
    else:
        weights = "2 N + 2 N'" if size.adapter_parameters else "2 N"
        attention, what = " + 4 L H Q T", "forward"
    return f"{weights}{attention if size.layers else ''}, {what}"


def model_size(options: argparse.Namespace) -> tuple[TransformerSize, tuple[str, ...]]:
    """The model of `options`, and what was left out or taken for granted."""
    if options.params is None:
        raise CommandError("give --params, the number of parameters of the model", exit_code=2)
    notes: list[str] = []
    embedding = 0
    if options.vocabulary is not None and not options.tied:
        if options.hidden is None:
            raise CommandError(
                "--vocabulary needs --hidden: the embedding has V x H parameters", exit_code=2
            )
        embedding = options.vocabulary * options.hidden
        notes.append(f"N is without the input embedding of {embedding:,} parameters: a lookup.")
    elif not options.tied:
        notes.append("N has all parameters; --vocabulary leaves the input embedding out.")
    size = TransformerSize(
        parameters=options.params,
        active_parameters=options.active_params,
        experts=options.experts,
        experts_per_token=options.experts_per_token,
        adapter_parameters=options.lora_params or 0,
        embedding_parameters=embedding,
    )
    _refuse_misfits(options, size)
    if options.active_params is not None:
        notes.append("N has the parameters that one token meets, not those of all experts.")
    if options.lora_params is not None:
        notes.append("Frozen weights cost 4 N in training: they have no gradient of their own.")
    head = options.head_dim
    if head is None and options.hidden is not None and options.heads is not None:
        head = options.hidden // options.heads
    width = options.hidden if options.heads is None or head is None else options.heads * head
    if options.layers is None or width is None or options.sequence is None:
        notes.append("Attention's scores are left out: --layers, --hidden and --sequence tell it.")
        return size, tuple(notes)
    key_heads = options.kv_heads or options.heads
    keys = options.sequence if options.window is None else min(options.sequence, options.window)
    size = replace(
        size,
        layers=options.layers,
        attention_width=width,
        key_width=width if key_heads is None or head is None else key_heads * head,
        keys=keys,
    )
    notes.append(
        f"Attention in full: each query with all {keys:,} keys; causal counts half of that."
        if options.mode != "decode"
        else f"Each token reads and multiplies all {keys:,} keys of its cache."
    )
    return size, tuple(notes)


def _refuse_misfits(options: argparse.Namespace, size: TransformerSize) -> None:
    if size.multiplied <= 0:
        raise CommandError(
            "the embedding has more parameters than the model: check --params", exit_code=2
        )
    if size.active_parameters is not None and size.active_parameters > size.parameters:
        raise CommandError(
            "--active-params is more than --params, which are all experts'", exit_code=2
        )
    if (options.experts is None) != (options.experts_per_token is None):
        raise CommandError("--experts and --experts-per-token are given together", exit_code=2)
    if options.experts is not None and options.experts <= options.experts_per_token:
        raise CommandError("--experts-per-token is not less than --experts", exit_code=2)
    if options.heads is not None and options.head_dim is None and options.hidden is not None:
        if options.hidden % options.heads:
            raise CommandError(
                "--hidden is not a multiple of --heads: give --head-dim", exit_code=2
            )
    if options.kv_heads is not None and options.heads is None:
        raise CommandError("--kv-heads needs --heads", exit_code=2)


def _speed(options: argparse.Namespace) -> tuple[float | None, float | None]:
    """Tokens a second of one GPU, and the time of a step in seconds."""
    tokens = options.tokens
    if tokens is None and options.batch is not None:
        if options.mode == "decode":
            tokens = options.batch
        elif options.sequence is not None:
            tokens = options.batch * options.sequence
    step_s = options.step_time
    if options.tokens_per_second is not None:
        if step_s is not None:
            raise CommandError("give --tokens-per-second or --step-time, not both", exit_code=2)
        if options.mode == "decode" and tokens is not None:
            step_s = tokens / options.tokens_per_second
        return options.tokens_per_second / options.gpus, step_s
    if step_s is None:
        return None, None
    if tokens is None:
        needed = "--batch" if options.mode == "decode" else "--tokens, or --batch with --sequence"
        raise CommandError(f"--step-time needs {needed}", exit_code=2)
    return tokens / step_s / options.gpus, step_s


def _speed_notes(options: argparse.Namespace) -> tuple[str, ...]:
    if options.gpus > 1:
        return (f"Tokens are of the whole job, shared by {options.gpus} GPUs.",)
    if options.tokens_per_second is not None or options.step_time is not None:
        return ("Tokens are taken as one GPU's; --gpus divides those of a whole job.",)
    return ()


def _peaks(options: argparse.Namespace) -> tuple[float | None, float | None, str]:
    """FLOP/s and bytes/s of one GPU, and where the first comes from."""
    peak, bandwidth = options.peak, options.bandwidth
    label = "" if peak is None else f"{options.precision} peak as given"
    if options.device is None:
        return peak, bandwidth, label
    lookup = find_meant(options.device, _kind(options.device))
    if lookup.spec is None:
        raise CommandError(f"--device: {lookup.reason}; give --peak and --bandwidth", exit_code=2)
    roof = Roof(datasheet_ceilings(lookup.spec), "datasheet")
    compute, memory = roof.compute_rate("matmul", options.precision), roof.memory_rate()
    if peak is None:
        if compute is None:
            raise CommandError(
                f"--precision {options.precision}: none is known for {lookup.spec.name}",
                exit_code=2,
            )
        peak, label = compute.rate, f"{compute.label}, {lookup.spec.name}"
    if bandwidth is None and memory is not None:
        bandwidth = memory.rate
    return peak, bandwidth, label


def _kind(name: str) -> DeviceKind:
    return "hip" if "instinct" in name.lower() or "amd" in name.lower() else "cuda"


def _with_memory(
    found: Answer, options: argparse.Namespace, size: TransformerSize, step_s: float | None
) -> Answer:
    """`found` with what one GPU reads in a decoding step."""
    if options.batch is None and options.tokens is None:
        return found
    sequences = options.batch or options.tokens
    bits = _BITS[options.precision]
    weights = weight_bytes(size, sequences, options.weight_bits or bits)
    keys_values = options.kv_bytes
    if keys_values is None:
        keys_values = key_value_bytes(size, sequences, bits)
    notes = found.notes
    if weights is None:
        notes += ("Which experts a step reads is not known: give --experts, --experts-per-token.",)
    if keys_values is None:
        notes += ("Keys and values are not known: give --kv-bytes, or the model's dimensions.",)
    if size.active_parameters is not None and sequences > 1:
        notes += ("Experts read are the most that the step's tokens can choose.",)
    if weights is not None:
        weights = round(weights / options.gpus)
    if keys_values is not None:
        keys_values = round(keys_values / options.gpus)
    mbu = None
    if step_s and found.bandwidth and weights is not None and keys_values is not None:
        mbu = (weights + keys_values) / step_s / found.bandwidth
    return msgspec.structs.replace(
        found, weight_bytes=weights, key_value_bytes=keys_values, mbu=mbu, notes=notes
    )


def _share(flops: int | None, tokens_per_s: float | None, peak: float | None) -> float | None:
    if flops is None or tokens_per_s is None or peak is None:
        return None
    return flops * tokens_per_s / peak


def answer_facts(found: Answer) -> list[Fact]:
    """The figures as labelled sentences."""
    rows = [
        Fact("N", f"{found.parameters:,}", "parameters that a token is multiplied with"),
        Fact("FLOPs", formatting.quantity(found.flops_per_token, "FLOP a token", 4), found.formula),
    ]
    if found.tokens_per_s is not None:
        speed = formatting.quantity(found.tokens_per_s, "tokens/s a GPU", 4)
        rows.append(Fact("Speed", speed, formatting.flops_rate(found.flops_per_s)))
    if found.mfu is not None:
        of_peak = f"of {formatting.flops_rate(found.peak)} {found.peak_label}"
        rows.append(_share_fact("MFU", found.mfu, of_peak))
    if found.mfu_causal_half is not None and found.mfu_causal_half != found.mfu:
        if found.mode != "decode":
            rows.append(_share_fact("MFU, causal", found.mfu_causal_half, "half of the attention"))
    if found.hfu is not None:
        again = "the forward pass computed again"
        rows.append(_share_fact("HFU", found.hfu, again))
    if found.mbu is not None:
        read = (
            f"{formatting.byte_count(found.weight_bytes)} of weights and "
            f"{formatting.byte_count(found.key_value_bytes)} of keys and values a step, "
            f"of {formatting.byte_rate(found.bandwidth)}"
        )
        rows.append(_share_fact("MBU", found.mbu, read))
    return rows


def _share_fact(label: str, share: float, note: str) -> Fact:
    flag = f"; {OVER_PEAK}" if is_over_peak(share) else ""
    return Fact(label, formatting.percent(share), note + flag)


def beside_capture(options: argparse.Namespace) -> tuple[Analysis, ClosedForm]:
    """The analysis of the capture, and the closed form of the options or of its own model.

    Raises `CaptureError`, and `CommandError` where neither knows the parameters, or the formula
    is not meant for what ran.
    """
    from gpuprof.collectors import storage
    from gpuprof.roofline.analyze import analyze
    from gpuprof.roofline.utilization.closed_form import with_attention

    path: Path = options.capture
    capture = storage.load(path)
    rank = capture.manifest.ranks[0]
    capture = capture.rank(rank)
    (process,) = capture.processes
    size = None
    if options.params is not None:
        size, _ = model_size(options)
        process = msgspec.structs.replace(process, model=_parameters(options, size))
    if process.model is None:
        raise CommandError(
            f"{path} does not tell the model's parameters; give --params", exit_code=2
        )
    analysis = analyze(capture.with_processes((process,)))
    form = analysis.closed_form
    if form is None:
        raise CommandError(
            f"{path}: products of {process.model.name}'s parameters are not most of the step; "
            "the closed form is not meant for it"
        )
    if size is not None and size.attention_width is not None:
        training = form.formula.startswith("6")
        attention = model_flops(size, "training" if training else "inference").attention
        form = with_attention(form, attention * form.tokens)
    return analysis, form


def _parameters(options: argparse.Namespace, size: TransformerSize) -> ModelParameters:
    """The model of `options` as a capture has it; what is not told is a matrix of unknown shape."""

    def shape(role: ParameterRole, *sizes: int, trainable: bool = True) -> ParameterShape:
        return ParameterShape(role=role, shape=sizes, count=1, trainable=trainable)

    frozen = options.lora_params is not None
    shapes = []
    rest = size.multiplied
    if options.vocabulary is not None and options.hidden is not None:
        table = options.vocabulary, options.hidden
        shapes.append(shape("matrix", *table, trainable=not frozen))
        if size.embedding_parameters:
            shapes.append(shape("embedding", *table, trainable=not frozen))
        rest -= options.vocabulary * options.hidden
    shapes.append(shape("matrix", rest, trainable=not frozen))
    if size.adapter_parameters:
        shapes.append(shape("matrix", size.adapter_parameters))
    return ModelParameters(name="the model", shapes=tuple(shapes))
