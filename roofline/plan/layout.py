"""How a training job is divided over GPUs, and which divisions a model and a batch allow."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal, get_args

from gpuprof.roofline.plan.decoder import DecoderShape

# none: all activations are kept. selective: attention's scores are computed again (Korthikanti et
# al. 2022). full: each layer is computed again from its input.
Checkpointing = Literal["none", "selective", "full"]
CHECKPOINTING: Final[tuple[Checkpointing, ...]] = get_args(Checkpointing)
ZERO_STAGES: Final = (0, 1, 2, 3)
# Sequences of a micro-batch that are tried where none is given.
_MICRO_BATCHES = (1, 2, 4, 8, 16)
_CHUNKS = (1, 2, 4)


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """What one step computes and what is kept of it. Bytes are of one element."""

    # Tokens a sequence, and sequences a step over all GPUs.
    sequence: int
    batch: int
    # Mixed precision with Adam (Rajbhandari et al. 2020, section 3.1): 16-bit parameters and
    # gradients; 32-bit parameters, momentum and variance in the optimizer.
    parameter_bytes: int = 2
    gradient_bytes: int = 2
    optimizer_bytes: int = 12
    activation_bytes: int = 2
    # Attention in one kernel, which keeps no scores.
    fused_attention: bool = True


@dataclass(frozen=True, kw_only=True)
class ParallelLayout:
    """Degrees of parallelism. Ranks are numbered tensor first, then data, then pipeline."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    # Of experts, within the data-parallel group.
    expert: int = 1
    # ZeRO stage: 1 divides the optimizer's states over the data-parallel group, 2 gradients too,
    # 3 parameters too; 0 none.
    zero: int = 0
    # Chunks of layers a GPU has (interleaved 1F1B); 1 without interleaving.
    chunks: int = 1
    # Sequences of one micro-batch, and micro-batches of one step of one replica.
    micro_batch: int = 1
    micro_batches: int = 1
    checkpointing: Checkpointing = "none"
    # Norms and dropouts are divided over the tensor-parallel group by tokens.
    sequence_parallel: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of the whole job."""
        return self.tensor * self.pipeline * self.data

    @property
    def outside(self) -> int:
        """By what activations outside attention and MLP are divided."""
        return self.tensor if self.sequence_parallel else 1


@dataclass(frozen=True, kw_only=True)
class LayoutChoices:
    """Which degrees are tried; None: all that fit the model and the number of GPUs."""

    tensor: tuple[int, ...] | None = None
    pipeline: tuple[int, ...] | None = None
    expert: tuple[int, ...] | None = None
    zero: tuple[int, ...] = ZERO_STAGES
    chunks: tuple[int, ...] = _CHUNKS
    micro_batch: tuple[int, ...] = _MICRO_BATCHES
    checkpointing: tuple[Checkpointing, ...] | None = None
    sequence_parallel: bool = True


def possible_layouts(
    decoder: DecoderShape, job: TrainingJob, gpus: int, gpus_per_node: int, choices: LayoutChoices
) -> Iterator[ParallelLayout]:
    """All layouts of `choices` on `gpus` GPUs that the model's sizes and the batch allow.

    Tensor parallelism stays within a node unless its degrees are given: it communicates in each
    layer. Of two layouts that do the same, such as ZeRO over one replica, one is given.
    """
    tensors = choices.tensor or _divisors(gpus_per_node)
    for tensor in (t for t in tensors if _divides_layers(decoder, t)):
        for pipeline in choices.pipeline or _divisors(decoder.layers):
            data, rest = divmod(gpus, tensor * pipeline)
            if rest or not data or decoder.layers % pipeline:
                continue
            for expert, zero, micro_batch, checkpointing, chunks in product(
                choices.expert or _divisors(decoder.experts),
                choices.zero,
                choices.micro_batch,
                choices.checkpointing or _checkpointing(job),
                choices.chunks,
            ):
                micro_batches, unequal = divmod(job.batch, data * micro_batch)
                layout = ParallelLayout(
                    tensor=tensor,
                    pipeline=pipeline,
                    data=data,
                    expert=expert,
                    zero=zero,
                    chunks=chunks,
                    micro_batch=micro_batch,
                    micro_batches=micro_batches,
                    checkpointing=checkpointing,
                    sequence_parallel=choices.sequence_parallel and tensor > 1,
                )
                if not unequal and _is_possible(decoder, job, layout):
                    yield layout


def _is_possible(decoder: DecoderShape, job: TrainingJob, layout: ParallelLayout) -> bool:
    if layout.micro_batches < 1 or decoder.experts % layout.expert or layout.data % layout.expert:
        return False
    if layout.zero and layout.data == 1:
        return False
    if layout.sequence_parallel and job.sequence % layout.tensor:
        return False
    if layout.chunks == 1:
        return True
    # Narayanan et al. 2021, section 2.2: micro-batches are a multiple of the stages.
    per_stage = decoder.layers // layout.pipeline
    in_rounds = layout.micro_batches % layout.pipeline == 0
    return layout.pipeline > 1 and per_stage % layout.chunks == 0 and in_rounds


def _divides_layers(decoder: DecoderShape, tensor: int) -> bool:
    keys = decoder.key_heads
    divided = keys % tensor == 0 or tensor % keys == 0
    return divided and decoder.heads % tensor == 0 and decoder.inner % tensor == 0


def _checkpointing(job: TrainingJob) -> tuple[Checkpointing, ...]:
    return ("none", "full") if job.fused_attention else ("none", "selective", "full")


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(divisor for divisor in range(1, number + 1) if number % divisor == 0)
