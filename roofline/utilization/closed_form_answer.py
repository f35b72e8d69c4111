"""MFU, HFU and MBU of a transformer from its dimensions and its speed, without running it."""

from dataclasses import dataclass

import msgspec

from gpuprof.collectors.manifest import ModelParameters, ParameterRole, ParameterShape
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


@dataclass(frozen=True, kw_only=True)
class TransformerRun:
    """What is known of a transformer, of how fast it runs and on what. None is unknown."""

    mode: Mode
    # Of the model: all of them, and of a mixture of experts those active per token.
    parameters: int
    active_parameters: int | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    # Of low-rank adapters beside `parameters`, which are then frozen.
    adapter_parameters: int | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    key_heads: int | None = None
    head_size: int | None = None
    # Tokens a sequence, or in the cache; and the keys that a sliding window leaves of them.
    sequence: int | None = None
    window: int | None = None
    # Leaves the input embedding out of N, unless it is `tied` to the output head.
    vocabulary: int | None = None
    tied: bool = False
    # Full activation checkpointing.
    recompute: bool = False
    # Of the whole job. Tokens are those of one step.
    tokens_per_s: float | None = None
    step_s: float | None = None
    batch: int | None = None
    tokens: int | None = None
    gpus: int = 1
    # Keys and values that a decoding step reads.
    key_value_bytes: int | None = None
    # Of one GPU: FLOP/s with its name, and bytes/s.
    peak: float | None = None
    peak_label: str = ""
    bandwidth: float | None = None
    # Of products, and of a stored weight where that is another.
    precision: str = "bf16"
    weight_bits: int | None = None

    @property
    def embedding_parameters(self) -> int:
        """Of an input embedding that is no output head too; a lookup multiplies nothing."""
        if self.vocabulary is None or self.hidden is None or self.tied:
            return 0
        return self.vocabulary * self.hidden

    @property
    def step_tokens(self) -> int | None:
        """Tokens of one step of the whole job."""
        if self.tokens is not None or self.batch is None:
            return self.tokens
        if self.mode == "decode":
            return self.batch
        return None if self.sequence is None else self.batch * self.sequence

    @property
    def step_sequences(self) -> int | None:
        """Sequences of one decoding step, each of which gets one token."""
        return self.batch or self.tokens

    @property
    def size(self) -> TransformerSize:
        """The model; without attention where its dimensions are unknown."""
        size = {
            "parameters": self.parameters,
            "active_parameters": self.active_parameters,
            "experts": self.experts,
            "experts_per_token": self.experts_per_token,
            "adapter_parameters": self.adapter_parameters or 0,
            "embedding_parameters": self.embedding_parameters,
        }
        head = self.head_size
        if head is None and self.hidden is not None and self.heads is not None:
            head = self.hidden // self.heads
        width = self.hidden if self.heads is None or head is None else self.heads * head
        if self.layers is None or width is None or self.sequence is None:
            return TransformerSize(**size)  # type: ignore[arg-type]
        key_heads = self.key_heads or self.heads
        return TransformerSize(
            **size,  # type: ignore[arg-type]
            layers=self.layers,
            attention_width=width,
            key_width=width if key_heads is None or head is None else key_heads * head,
            keys=self.sequence if self.window is None else min(self.sequence, self.window),
        )

    @property
    def as_parameters(self) -> ModelParameters:
        """The model as a capture has it; the rest is a matrix of unknown shape."""

        def shape(role: ParameterRole, *sizes: int, trainable: bool = True) -> ParameterShape:
            return ParameterShape(role=role, shape=sizes, count=1, trainable=trainable)

        trainable = self.adapter_parameters is None
        shapes = []
        rest = self.size.multiplied
        if self.vocabulary is not None and self.hidden is not None:
            table = self.vocabulary, self.hidden
            shapes.append(shape("matrix", *table, trainable=trainable))
            if not self.tied:
                shapes.append(shape("embedding", *table, trainable=trainable))
            rest -= self.vocabulary * self.hidden
        shapes.append(shape("matrix", rest, trainable=trainable))
        if self.adapter_parameters:
            shapes.append(shape("matrix", self.adapter_parameters))
        return ModelParameters(name="the model", shapes=tuple(shapes))


class ClosedFormAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one GPU. None where the run leaves them open."""

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


def closed_form_answer(run: TransformerRun) -> ClosedFormAnswer:
    """The closed form of `run`, whose figures fit together.

    See `gpuprof.roofline.utilization.model_flops` for the formulas and their sources.
    """
    size = run.size
    tokens_per_s, step_s = _speed(run)
    flops = model_flops(size, run.mode)
    hardware = hardware_flops(size).full if run.recompute else None
    found = ClosedFormAnswer(
        mode=run.mode,
        formula=_formula(size, run.mode),
        parameters=size.multiplied + size.adapter_parameters,
        flops_per_token=flops.full,
        flops_per_token_causal_half=flops.causal_half,
        hardware_flops_per_token=hardware,
        tokens_per_s=tokens_per_s,
        flops_per_s=None if tokens_per_s is None else flops.full * tokens_per_s,
        peak=run.peak,
        mfu=_share(flops.full, tokens_per_s, run.peak),
        mfu_causal_half=_share(flops.causal_half, tokens_per_s, run.peak),
        hfu=_share(hardware, tokens_per_s, run.peak),
        bandwidth=run.bandwidth,
        peak_label=run.peak_label,
    )
    return _with_memory(found, run, size, step_s) if run.mode == "decode" else found


def _formula(size: TransformerSize, mode: Mode) -> str:
    """The formula in letters, with N' for the adapters' parameters."""
    if mode == "training":
        weights = "4 N + 6 N'" if size.adapter_parameters else "6 N"
        attention, what = " + 12 L H Q T", "forward and backward"
    else:
        weights = "2 N + 2 N'" if size.adapter_parameters else "2 N"
        attention, what = " + 4 L H Q T", "forward"
    return f"{weights}{attention if size.layers else ''}, {what}"


def _speed(run: TransformerRun) -> tuple[float | None, float | None]:
    """Tokens a second of one GPU, and the time of a step in seconds."""
    tokens = run.step_tokens
    if run.tokens_per_s is not None:
        known = run.mode == "decode" and tokens is not None
        step_s = tokens / run.tokens_per_s if known and tokens is not None else None
        return run.tokens_per_s / run.gpus, step_s
    if run.step_s is None or tokens is None:
        return None, None
    return tokens / run.step_s / run.gpus, run.step_s


def _with_memory(
    found: ClosedFormAnswer, run: TransformerRun, size: TransformerSize, step_s: float | None
) -> ClosedFormAnswer:
    """`found` with what one GPU reads in a decoding step."""
    sequences = run.step_sequences
    if sequences is None:
        return found
    bits = _BITS[run.precision]
    weights = weight_bytes(size, sequences, run.weight_bits or bits)
    keys_values = run.key_value_bytes
    if keys_values is None:
        keys_values = key_value_bytes(size, sequences, bits)
    if weights is not None:
        weights = round(weights / run.gpus)
    if keys_values is not None:
        keys_values = round(keys_values / run.gpus)
    mbu = None
    if step_s and run.bandwidth and weights is not None and keys_values is not None:
        mbu = (weights + keys_values) / step_s / run.bandwidth
    return msgspec.structs.replace(
        found, weight_bytes=weights, key_value_bytes=keys_values, mbu=mbu
    )


def _share(flops: int | None, tokens_per_s: float | None, peak: float | None) -> float | None:
    if flops is None or tokens_per_s is None or peak is None:
        return None
    return flops * tokens_per_s / peak
