"""Picks the marks that are the script's steps.

Sources are given in order of trust. The most trusted one that has marked anything leads; within
it, the first object that marks twice, and of several optimizers the one that steps least often. A
more trusted source may take over at any time, and then counting starts again. Replays of a CUDA
graph take over where a program goes on with them alone.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

from gpuprof.collectors.steps.forward_calls import ForwardCalls
from gpuprof.collectors.steps.periods import Periods
from gpuprof.collectors.steps.sources import (
    GraphReplays,
    Mark,
    OptimizerSteps,
    StepCallback,
    StepSource,
    training_is_pending,
)

# A forward call inside a training loop comes before the optimizer step that ends the loop's pass.
# With gradient accumulation that many calls may precede it.
_FORWARD_CALLS_BEFORE_AN_OPTIMIZER = 64
# So many steps of the leading optimizer one that has stepped may need to show its period, and one
# that has not stepped yet to come at all.
_STEPS_IN_A_PERIOD: Final = 64
_STEPS_BEFORE_ANOTHER_OPTIMIZER: Final = 24
# Replays of one graph without a mark of the leader, after which they are what the program does.
_REPLAYS_ALONE: Final = 16


class StepListener(Protocol):
    """Who is told of steps."""

    def boundary(self, mark: Mark) -> None:
        """One step boundary of the leading marks."""

    def restarted(self, mark: Mark) -> None:
        """`mark` is the first boundary of new leading marks; earlier boundaries were not steps."""


class StepSearch(Protocol):
    """Who knows which marks are the steps, and tells a listener of them."""

    @property
    def leader(self) -> Mark | None:
        """See `StepFinder`."""

    def install(self) -> None:
        """Begin to tell of steps."""

    def leads_within_a_step(self) -> bool:
        """See `StepFinder`."""

    def may_settle(self) -> bool:
        """See `StepFinder`."""

    def settle(self) -> None:
        """See `StepFinder`."""

    def reduce_to(self, step: StepCallback) -> None:
        """See `StepFinder`."""

    def remove(self) -> None:
        """Tell of no more."""


class StepFinder:
    """Watches sources and passes the boundaries of the leading one on."""

    def __init__(self, sources: Sequence[StepSource], listener: StepListener) -> None:
        self._sources = tuple(sources)
        self._listener = listener
        self._leader: Mark | None = None
        self._marks_of_leader = 0
        # False until the leader has marked twice.
        self._leader_recurs = False
        self._seen: set[tuple[int, int]] = set()
        self._forward_calls = 0
        self._periods = Periods()
        # Of each graph since the leader's last mark, and the most between two of its marks.
        self._replays: Counter[int] = Counter()
        self._most_replays = 0
        self._outnumbered: set[StepSource] = set()

    @property
    def leader(self) -> Mark | None:
        """The mark whose source and object are taken for the steps; None before any."""
        return self._leader

    def install(self) -> None:
        """Begin to watch all sources."""
        for source in self._sources:
            source.install(self._marked)

    def leads_within_a_step(self) -> bool:
        """Whether the leading marks may turn out to be parts of steps that an optimizer ends."""
        return (
            self._leader is not None
            and len(self._sources) > 1
            and isinstance(self._leader.source, ForwardCalls)
            and self._forward_calls <= _FORWARD_CALLS_BEFORE_AN_OPTIMIZER
            and training_is_pending()
        )

    def may_settle(self) -> bool:
        """Whether the leading marks can be trusted to be the steps from here on."""
        if self._leader is None:
            return False
        source = self._leader.source
        if isinstance(source, OptimizerSteps):
            return self._period_is_known(source)
        if len(self._sources) == 1 or not isinstance(source, ForwardCalls):
            return True
        self._forward_calls += 1
        return self._forward_calls > _FORWARD_CALLS_BEFORE_AN_OPTIMIZER or not training_is_pending()

    def _period_is_known(self, source: OptimizerSteps) -> bool:
        if self._marks_of_leader > _STEPS_IN_A_PERIOD:
            return True
        waiting = self._marks_of_leader <= _STEPS_BEFORE_ANOTHER_OPTIMIZER
        return self._periods.decided and not (waiting and source.others_may_step())

    def settle(self) -> None:
        """Narrow to the leading object; only more trusted sources stay installed beside it."""
        assert self._leader is not None
        for source in self._sources[self._trust(self._leader) + 1 :]:
            # A program may go on with replays of what it has captured.
            if not isinstance(source, GraphReplays):
                source.remove()
        self._leader.source.narrow(self._leader.key)

    def reduce_to(self, step: StepCallback) -> None:
        """Call `step` at each of the leading marks from now on, whatever else marks steps."""
        assert self._leader is not None
        for source in self._sources:
            if source is not self._leader.source:
                source.remove()
        self._leader.source.reduce_to(self._leader.key, step)

    def remove(self) -> None:
        """Stop watching."""
        for source in self._sources:
            source.remove()

    def _trust(self, mark: Mark) -> int:
        return self._sources.index(mark.source)

    def _marked(self, mark: Mark) -> None:
        if mark.source in self._outnumbered:
            return
        place = (self._trust(mark), mark.key)
        seen_before = place in self._seen
        self._seen.add(place)
        leader = self._leader
        if leader is None or place[0] < self._trust(leader):
            self._lead(mark)
        elif mark.source is not leader.source:
            self._count_replay(mark, leader)
        elif mark.key == leader.key:
            self._marks_of_leader += 1
            self._leader_recurs = True
            self._periods.leader_marked()
            self._note_replays()
            self._listener.boundary(mark)
        elif seen_before and not self._leader_recurs:
            self._lead(mark)
        elif isinstance(mark.source, OptimizerSteps) and self._periods.marked(mark.key):
            optimizers = sum(trust == place[0] for trust, _ in self._seen)
            label = f"{mark.label}, the longest period of {optimizers} optimizers"
            self._lead(replace(mark, label=label), recurs=True)

    def _count_replay(self, mark: Mark, leader: Mark) -> None:
        """Let replays lead where the optimizer or module that led has stopped marking."""
        if not isinstance(mark.source, GraphReplays):
            return
        self._replays[mark.key] += 1
        found = isinstance(leader.source, OptimizerSteps | ForwardCalls)
        if found and self._replays[mark.key] > max(_REPLAYS_ALONE, 2 * self._most_replays):
            for source in self._sources[self._trust(leader) : self._trust(mark)]:
                self._outnumbered.add(source)
                source.remove()
            self._lead(mark)

    def _note_replays(self) -> None:
        self._most_replays = max(self._most_replays, *self._replays.values(), 0)
        self._replays.clear()

    def _lead(self, mark: Mark, *, recurs: bool = False) -> None:
        if self._leader is not None and isinstance(self._leader.source, GraphReplays):
            # They came before this mark: within one step.
            self._replays[self._leader.key] += self._marks_of_leader
        self._note_replays()
        self._leader = mark
        self._marks_of_leader = 1
        self._leader_recurs = recurs
        self._periods = Periods()
        self._periods.leader_marked()
        self._listener.restarted(mark)
