"""What `gpuprof plan` says of a layout: memory, communication and time. Times are of one step."""

from typing import Literal, TypeAlias

import msgspec

TransferKind: TypeAlias = Literal[
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send"
]
# expert data: ranks that have the same experts. embedding: the stages that share it.
TransferGroup: TypeAlias = Literal[
    "tensor", "expert", "pipeline", "data", "expert data", "embedding"
]


# What a transfer can overlap with: all of it, backward passes, the last backward pass or the first
# forward pass of a step.
Overlapped: TypeAlias = Literal[
    "computing", "backward passes", "last backward pass", "first forward pass"
]


class PlannedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on one GPU, of the stage that needs most."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    # What ZeRO gathers of divided parameters, and gradients before they are divided.
    gathered_bytes: int
    activations_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        states = self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes
        return states + self.gathered_bytes + self.activations_bytes


class PlannedTransfer(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of message of one GPU; bytes are those of all calls, a message the whole buffer."""

    what: str
    kind: TransferKind
    group: TransferGroup
    ranks: int
    calls: int
    total_bytes: int
    # None where the next work waits for it.
    overlapped: Overlapped | None = None
    # Of all calls, alone on the link.
    time_ns: int = 0


class PlannedTime(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of one step of the slowest pipeline stage; they add up to the step."""

    # Products and attention; all computing where a program's MFU is its rate.
    compute_ns: int
    # Norms, activations and other operators that take as long as they read and write, and copies of
    # gradients and parameters.
    memory_bound_ns: int
    # What checkpointing computes again.
    recompute_ns: int
    # Communication that computing waits for, by group.
    tensor_ns: int
    expert_ns: int
    pipeline_ns: int
    # Without work in the pipeline: (p - 1) / v micro-batches long.
    bubble_ns: int
    # Of ZeRO and data parallelism: what cannot overlap with computing, at least the last message.
    data_ns: int
    # By what computing takes longer beside the rest of that, as far as it stays within a node.
    slowed_ns: int
    optimizer_ns: int

    @property
    def step_ns(self) -> int:
        """All of it."""
        work = self.compute_ns + self.memory_bound_ns + self.recompute_ns + self.slowed_ns
        waiting = self.tensor_ns + self.expert_ns + self.pipeline_ns + self.data_ns
        return work + waiting + self.bubble_ns + self.optimizer_ns


class PlannedLayout(msgspec.Struct, frozen=True, kw_only=True):
    """One layout, with what it takes. The degrees are those of `ParallelLayout`."""

    tensor: int
    pipeline: int
    data: int
    expert: int
    zero: int
    chunks: int
    micro_batch: int
    micro_batches: int
    checkpointing: str
    sequence_parallel: bool
    # Of the stage that needs most, and whether the GPU has room for it.
    memory: PlannedMemory
    total_bytes: int
    fits: bool
    # Of the slowest stage.
    transfers: tuple[PlannedTransfer, ...]
    time: PlannedTime
    # Where all that can overlap does so at no cost, and where nothing overlaps.
    step_ns: int
    step_without_overlap_ns: int
    tokens_per_s: float
    # Model FLOPs of the step (attention in full) / step_ns / peak; None where no peak is known.
    mfu: float | None


class TrainingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The layouts of a training job on a cluster, fastest first."""

    parameters: int
    # Those that a token meets in matrix products.
    multiplied: int
    gpus: int
    device: str
    memory_bytes: int
    # What layouts may use of it.
    usable_bytes: int
    # FLOP/s of products, and where the rate comes from.
    flops_per_s: float
    rate_basis: str
    # Whether that is of products and attention ("executed"), or a program's MFU, which has all its
    # operators in it ("model").
    counted: Literal["executed", "model"]
    # Bus bandwidth within a node, and what a GPU sends to other nodes; None where there is none.
    link_bytes_per_s: float | None
    link_basis: str
    network_bytes_per_s: float | None
    # One for each combination of degrees and ZeRO stage: its fastest that fits.
    layouts: tuple[PlannedLayout, ...]
    # All that were tried, and how many of them fit.
    tried: int
    fitting: int
    # The one that needs least, where none fits.
    smallest: PlannedLayout | None = None
