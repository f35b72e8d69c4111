"""Picks the marks that are the script's steps.

Sources are given in order of trust. The most trusted one that has marked anything leads; within
it, the first object that marks twice. A more trusted source may take over at any time, and then
counting starts again.
"""

from collections.abc import Sequence
from typing import Protocol

from gpuprof.collectors.steps.sources import (
    ForwardCalls,
    Mark,
    StepSource,
    training_is_pending,
)

# A forward call inside a training loop comes before the optimizer step that ends the loop's pass.
# With gradient accumulation that many calls may precede it.
_FORWARD_CALLS_BEFORE_AN_OPTIMIZER = 64


class StepListener(Protocol):
    """Who is told of steps."""

    def boundary(self, mark: Mark) -> None:
        """One step boundary of the leading marks."""

    def restarted(self, mark: Mark) -> None:
        """`mark` is the first boundary of new leading marks; earlier boundaries were not steps."""


class StepFinder:
    """Watches sources and passes the boundaries of the leading one on."""

    def __init__(self, sources: Sequence[StepSource], listener: StepListener) -> None:
        self._sources = tuple(sources)
        self._listener = listener
        self._leader: Mark | None = None
        self._marks_of_leader = 0
        self._seen: set[tuple[int, int]] = set()
        self._forward_calls = 0

    @property
    def leader(self) -> Mark | None:
        """The mark whose source and object are taken for the steps; None before any."""
        return self._leader

    def install(self) -> None:
        """Begin to watch all sources."""
        for source in self._sources:
            source.install(self._marked)

    def may_settle(self) -> bool:
        """Whether the leading marks can be trusted to be the steps from here on."""
        if self._leader is None:
            return False
        if len(self._sources) == 1 or not isinstance(self._leader.source, ForwardCalls):
            return True
        self._forward_calls += 1
        return self._forward_calls > _FORWARD_CALLS_BEFORE_AN_OPTIMIZER or not training_is_pending()

    def settle(self) -> None:
        """Narrow to the leading object; only more trusted sources stay installed beside it."""
        assert self._leader is not None
        for source in self._sources[self._trust(self._leader) + 1 :]:
            source.remove()
        self._leader.source.narrow(self._leader.key)

    def remove(self) -> None:
        """Stop watching."""
        for source in self._sources:
            source.remove()

    def _trust(self, mark: Mark) -> int:
        return self._sources.index(mark.source)

    def _marked(self, mark: Mark) -> None:
        place = (self._trust(mark), mark.key)
        seen_before = place in self._seen
        self._seen.add(place)
        leader = self._leader
        if leader is None or place[0] < self._trust(leader):
            self._lead(mark)
        elif mark.source is not leader.source:
            return
        elif mark.key == leader.key:
            self._marks_of_leader += 1
            self._listener.boundary(mark)
        elif seen_before and self._marks_of_leader == 1:
            self._lead(mark)

    def _lead(self, mark: Mark) -> None:
        self._leader = mark
        self._marks_of_leader = 1
        self._listener.restarted(mark)
