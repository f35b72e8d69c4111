"""Ranks of made-up parallel jobs, whose waiting is known from how they were made."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import polars as pl

from gpuprof.roofline.ranks.summary import (
    COLLECTIVES,
    STEPS,
    WORK,
    RankProcess,
    RankSummary,
)


@dataclass
class RankTimeline:
    """What one rank did, in order of its beginning; times in ns."""

    rank: int
    world_size: int
    # (step, phase, module, start, end)
    work: list[tuple[int, str, str, int, int]] = field(default_factory=list)
    # (step, group, group_size, collective, bytes, start, end)
    collectives: list[tuple[int, str, int, str, int | None, int, int]] = field(default_factory=list)

    def compute(self, step: int, phase: str, start: int, length: int, module: str = "") -> int:
        """Device work; returns its end."""
        self.work.append((step, phase, module, start, start + length))
        return start + length

    def communicate(
        self,
        step: int,
        collective: str,
        start: int,
        end: int,
        *,
        group: str = "0",
        ranks: int | None = None,
        message_bytes: int | None = 1 << 20,
    ) -> int:
        """A collective from this rank's arrival to its end, which is returned."""
        size = self.world_size if ranks is None else ranks
        self.collectives.append((step, group, size, collective, message_bytes, start, end))
        return end

    def summary(self) -> RankSummary:
        """The rank, as `summarise` would tell it."""
        collectives = sorted(self.collectives, key=lambda row: row[5])
        rows = [
            {
                "step": step,
                "group": group,
                "group_size": size,
                "collective": name,
                "message_bytes": message_bytes,
                "start_ns": start,
                "end_ns": end,
                "exposed_ns": end - start - self._worked(start, end),
            }
            for step, group, size, name, message_bytes, start, end in collectives
        ]
        work = [
            {
                "step": step,
                "segment": sum(1 for each in collectives if each[0] == step and each[5] < end),
                "name": "aten::mm",
                "phase": phase,
                "module": module or None,
                "calls": 1,
                "device_ns": end - start,
            }
            for step, phase, module, start, end in self.work
        ]
        steps = [
            {
                "index": step,
                "phase": "profiled",
                "exposed_communication_ns": self._exposed(step),
                "working_ns": sum(end - start for at, *_, start, end in self.work if at == step),
            }
            for step in sorted({row[0] for row in self.work})
        ]
        return RankSummary(
            RankProcess(rank=self.rank, world_size=self.world_size),
            steps=pl.DataFrame(steps, schema=STEPS),
            collectives=pl.DataFrame(rows, schema=COLLECTIVES),
            work=pl.DataFrame(work, schema=WORK),
        )

    def _exposed(self, step: int) -> int:
        """Time in which collectives run and nothing works, counted once."""
        marks = sorted(
            {time for at, *_, start, end in self.collectives if at == step for time in (start, end)}
        )
        return sum(
            end - start - self._worked(start, end)
            for start, end in pairwise(marks)
            if any(at == step and a <= start and end <= b for at, *_, a, b in self.collectives)
        )

    def _worked(self, start: int, end: int) -> int:
        """Work within a time; pieces of work of a rank do not overlap."""
        return sum(max(0, min(end, done) - max(start, begun)) for *_, begun, done in self.work)


@dataclass(frozen=True)
class Pass:
    """One forward or backward pass of one chunk of layers with one micro-batch."""

    phase: str
    chunk: int
    micro_batch: int


def schedule(stage: int, stages: int, chunks: int, micro_batches: int) -> Iterator[Pass]:
    """1F1B, interleaved where there are several chunks, in the order of one stage's passes.

    Narayanan et al. 2021, section 2.2, and megatron/core/pipeline_parallel/schedules.py.
    """
    passes = micro_batches * chunks
    ahead = stages - stage - 1
    if chunks > 1:
        ahead = 2 * ahead + (chunks - 1) * stages

    def nth(number: int, *, forward: bool) -> Pass:
        chunk = number // stages % chunks if chunks > 1 else 0
        rounds = number // (stages * chunks) * stages + number % stages
        micro_batch = rounds if chunks > 1 else number
        if forward:
            return Pass("forward", chunk, micro_batch)
        return Pass("backward", chunks - 1 - chunk, micro_batch)

    ahead = min(ahead, passes)
    yield from (nth(number, forward=True) for number in range(ahead))
    for number in range(passes - ahead):
        yield nth(number + ahead, forward=True)
        yield nth(number, forward=False)
    yield from (nth(number, forward=False) for number in range(passes - ahead, passes))


def pipeline(
    stages: int,
    chunks: int,
    micro_batches: int,
    *,
    forward_ns: Sequence[int],
    optimizer_ns: int = 500,
    kept: int = 2,
) -> list[RankSummary]:
    """The stages of a pipeline, of which a chunk's forward pass takes `forward_ns` by stage.

    Backward passes take twice as long, messages no time. Of three more steps, which fill the
    pipeline, nothing is kept.
    """
    ranks = [RankTimeline(stage, stages) for stage in range(stages)]
    free = [0] * stages
    last = stages * chunks - 1
    for step in range(kept + 3):
        todo = [list(schedule(stage, stages, chunks, micro_batches)) for stage in range(stages)]
        done: dict[tuple[str, int, int], int] = {}
        while any(todo):
            for stage, passes in enumerate(todo):
                while passes:
                    one = passes[0]
                    place = one.chunk * stages + stage
                    before = place - 1 if one.phase == "forward" else place + 1
                    needed = (one.phase, before, one.micro_batch)
                    receives = 0 <= before <= last
                    if receives and needed not in done:
                        break
                    rank = ranks[stage]
                    start = max(free[stage], done[needed]) if receives else free[stage]
                    if receives:
                        rank.communicate(step, "recv", free[stage], start)
                    length = forward_ns[stage] * (1 if one.phase == "forward" else 2)
                    end = rank.compute(step, one.phase, start, length)
                    done[(one.phase, place, one.micro_batch)] = free[stage] = end
                    if place != (last if one.phase == "forward" else 0):
                        rank.communicate(step, "send", end, end)
                    passes.pop(0)
        for stage, rank in enumerate(ranks):
            free[stage] = rank.compute(step, "optimizer", free[stage], optimizer_ns)
    for rank in ranks:
        rank.work = [row for row in rank.work if row[0] >= 3]
        rank.collectives = [row for row in rank.collectives if row[0] >= 3]
    return [rank.summary() for rank in ranks]


def experts(
    tokens: Sequence[int], layers: int = 2, steps: int = 2, *, collective: str = "all_to_allv"
) -> list[RankSummary]:
    """A step of layers with experts, of which rank r's get `tokens[r]`: 10 ns and 64 bytes each."""
    ranks = [RankTimeline(rank, len(tokens)) for rank in range(len(tokens))]
    clock = 0
    for step in range(steps):
        for phase in ("forward", "backward"):
            for _ in range(layers):
                begun = clock + 100
                for rank, count in zip(ranks, tokens, strict=True):
                    rank.compute(step, phase, clock, 100, "layers.*.attention")
                    arrived = rank.communicate(
                        step, collective, begun, begun + 50, group="ep", message_bytes=64 * count
                    )
                    rank.compute(step, phase, arrived, 10 * count, "layers.*.mlp")
                slowest = begun + 50 + 10 * max(tokens)
                for rank, count in zip(ranks, tokens, strict=True):
                    own = begun + 50 + 10 * count
                    rank.communicate(
                        step,
                        collective,
                        own,
                        slowest + 50,
                        group="ep",
                        message_bytes=64 * count,
                    )
                clock = slowest + 50
    return [rank.summary() for rank in ranks]
