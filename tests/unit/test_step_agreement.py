"""Ranks whose devices settle at different times profile the same steps."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from torch.distributed import HashStore

from gpuprof.collectors.live import cuda
from gpuprof.collectors.manifest import Schedule
from gpuprof.collectors.steps.step_time import StepTime
from gpuprof.profiler.run import timed_steps
from gpuprof.profiler.run.step_agreement import StepAgreement, is_meeting
from gpuprof.profiler.run.timed_steps import TimedSteps

MS = 1_000_000


def test_ranks_meet_more_rarely_as_they_go() -> None:
    meetings = [boundary for boundary in range(1, 65) if is_meeting(boundary)]
    assert meetings == [*range(1, 8), 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64]


class Clock:
    """A device that takes equally long for each step, in place of `StepClock`."""

    def __init__(self, length_ns: int) -> None:
        self._length_ns = length_ns
        self._boundaries = 0

    @property
    def steps(self) -> int:
        return max(0, self._boundaries - 1)

    def boundary(self, tokens: int | None = None) -> None:
        self._boundaries += 1

    def stop(self) -> None:
        """Nothing to undo."""

    def read(self) -> list[StepTime]:
        one = StepTime(
            phase="timed",
            start_ns=0,
            end_ns=0,
            host_ns=0,
            device_ns=self._length_ns,
            tokens=None,
        )
        return [one] * self.steps


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """By thread, what its device takes for a step."""
    by_thread: dict[int, int] = {}
    monkeypatch.setattr(cuda, "in_use", lambda: True)
    monkeypatch.setattr(
        timed_steps, "StepClock", lambda *_, **__: Clock(by_thread[threading.get_ident()])
    )
    return by_thread


def first_and_last_timed(
    length_ms: float, agreement: StepAgreement, lengths: dict[int, int], steps: int = 500
) -> tuple[int, int] | None:
    """The boundaries at which the timed steps begin and end; None where `steps` were too few."""
    lengths[threading.get_ident()] = round(length_ms * MS)
    timed = TimedSteps(Schedule(settling_ns=1000 * MS), agreement)
    timed.start()
    for boundary in range(4, steps):
        if timed.boundary(None, boundary):
            of_phase = [step.phase for step in timed.read()]
            assert of_phase.count("timed") == 10
            return boundary - 10, boundary
    return None


def of_ranks(
    lengths_ms: list[float],
    lengths: dict[int, int],
    store: Callable[[int], Any],
    *,
    patience_s: float = 60,
    missing: int = 0,
) -> list[tuple[int, int] | None]:
    """What each rank times; `missing` ranks more never come."""
    world_size = len(lengths_ms) + missing
    agreements = [StepAgreement(world_size, store=store, patience_s=patience_s) for _ in lengths_ms]
    # In one process each would be another search.
    for each in agreements:
        each._prefix = "gpuprof/0/0"
    with ThreadPoolExecutor(len(lengths_ms)) as pool:
        runs = [
            pool.submit(first_and_last_timed, length, agreement, lengths)
            for length, agreement in zip(lengths_ms, agreements, strict=True)
        ]
        return [run.result(timeout=120) for run in runs]


def test_all_ranks_time_from_the_boundary_at_which_the_last_has_settled(
    lengths: dict[int, int],
) -> None:
    table = HashStore()
    # A second is 50, 40 and 25 steps: the last has settled by the meeting at 56.
    assert of_ranks([20.0, 25.0, 40.0], lengths, lambda _: table) == [(56, 66)] * 3


def test_ranks_that_cannot_ask_each_other_mostly_agree(lengths: dict[int, int]) -> None:
    def none(_: int) -> Any:
        raise RuntimeError("the ranks have no process group")

    assert of_ranks([20.0, 20.4, 21.0], lengths, none) == [(56, 66)] * 3


def test_a_rank_that_never_comes_is_waited_for_once(lengths: dict[int, int]) -> None:
    table = HashStore()
    found = of_ranks([20.0, 20.4], lengths, lambda _: table, patience_s=0.05, missing=1)
    assert found == [(56, 66)] * 2
    asked = {key for key in range(4, 70) if table.check([f"gpuprof/0/0/{key}/here"])}
    assert asked == {4}
