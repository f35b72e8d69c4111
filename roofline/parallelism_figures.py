"""What a recording shows of its parallelism: a part of an `Analysis`.

Frozen structs; unknown is None. Figures are means over the profiled steps, times integer ns.
"""

import msgspec


class GradientBucket(msgspec.Struct, frozen=True, kw_only=True):
    """One all-reduce of gradients, of the rank that waits least for others in it."""

    message_bytes: int | None
    # The share of the backward pass's device work that was done when it began.
    backward_done: float | None
    duration_ns: int
    # In which nothing computes or copies.
    exposed_ns: int


class DataParallelism(msgspec.Struct, frozen=True, kw_only=True):
    """Gradients that are summed over replicas, in order of their beginning."""

    group: str
    ranks: int | None
    # As torch names element types; None where buckets differ.
    dtype: str | None = None
    # DistributedDataParallel fills buckets; else they are all-reduces of any making.
    by_ddp: bool = True
    buckets: tuple[GradientBucket, ...]

    @property
    def duration_ns(self) -> int:
        """Of all buckets."""
        return sum(bucket.duration_ns for bucket in self.buckets)

    @property
    def exposed_ns(self) -> int:
        """Of all buckets."""
        return sum(bucket.exposed_ns for bucket in self.buckets)


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one kind and pass in a step."""

    # "all-gather" and so on, and "forward" or "backward".
    collective: str
    phase: str
    calls: int
    # None where the message of any is unknown.
    total_bytes: int | None
    duration_ns: int
    exposed_ns: int
    # Of the calls: those that other work hides by half or more.
    hidden: int


class GroupExchanges(msgspec.Struct, frozen=True, kw_only=True):
    """What one group of ranks exchanges within the passes."""

    group: str
    ranks: int | None
    exchanges: tuple[Exchange, ...]
    # Calls of a layer in the forward passes; None where no names of modules tell.
    layers: int | None = None


class PipelineStage(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a pipeline."""

    rank: int
    # Device work but the optimizer's, and exposed sends and receives.
    working_ns: int
    waiting_ns: int


class Pipelining(msgspec.Struct, frozen=True, kw_only=True):
    """Stages that pass activations and gradients on."""

    stages: tuple[PipelineStage, ...]
    # None where the messages leave them open.
    micro_batches: int | None = None
    chunks: int | None = None

    @property
    def bubble(self) -> float | None:
        """The share of the stages' time in which they wait for each other."""
        waiting = sum(stage.waiting_ns for stage in self.stages)
        whole = waiting + sum(stage.working_ns for stage in self.stages)
        return waiting / whole if whole else None

    @property
    def least_bubble(self) -> float | None:
        """Of equal stages: (p - 1) / (v m + p - 1), Narayanan et al. 2021, section 2.2."""
        if self.micro_batches is None or self.chunks is None:
            return None
        fill = len(self.stages) - 1
        return fill / (self.chunks * self.micro_batches + fill)


class ExpertRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank that has some of the experts."""

    rank: int
    # Of its all-to-alls: the larger of what it sends and gets; None where any is unknown.
    total_bytes: int | None
    # Device work between tokens that come and results that go.
    expert_ns: int


class ExpertParallelism(msgspec.Struct, frozen=True, kw_only=True):
    """Experts that are divided over ranks."""

    group: str
    calls: int
    exposed_ns: int
    ranks: tuple[ExpertRank, ...]

    @property
    def imbalance(self) -> float | None:
        """The busiest rank's expert work over the mean; None for one rank, or without work."""
        times = [rank.expert_ns for rank in self.ranks]
        mean = sum(times) / len(times) if times else 0
        return max(times) / mean if len(times) > 1 and mean else None


class Parallelism(msgspec.Struct, frozen=True, kw_only=True):
    """How the work of a job is divided, as far as its communication tells."""

    data: tuple[DataParallelism, ...] = ()
    sharded: tuple[GroupExchanges, ...] = ()
    tensor: tuple[GroupExchanges, ...] = ()
    pipeline: Pipelining | None = None
    experts: tuple[ExpertParallelism, ...] = ()
