"""From what profiled steps wait for to what a step without the profiler does."""

import random

import pytest

from gpuprof.roofline.steps.waiting import (
    LONGEST_STRETCH,
    SeenWaiting,
    Waiting,
    WaitingParts,
    waiting_parts,
)

STEP = 10_000


def timed(idle_ns: int, **seen: Waiting) -> WaitingParts:
    return waiting_parts(SeenWaiting(seen), idle_ns, step_ns=STEP, basis="timed")


def profiled(idle_ns: int, step_ns: int = STEP, **seen: Waiting) -> WaitingParts:
    return waiting_parts(SeenWaiting(seen), idle_ns, step_ns=step_ns, basis="host range")


def lengths(found: WaitingParts) -> dict[str, int]:
    return {kind: part.nanoseconds for kind, part in found.parts.items()}


LOADER = Waiting(keeps_ns=3000)
LAUNCH = Waiting(shrinks_ns=2000)


def test_what_a_timed_step_is_shorter_by_is_launching() -> None:
    assert lengths(timed(4000, loader=LOADER, launch=LAUNCH)) == {"loader": 3000, "launch": 1000}


def test_a_wait_after_a_synchronisation_shrinks_as_launches_do() -> None:
    both = Waiting(keeps_ns=100, shrinks_ns=1000)
    found = timed(1600, synchronisation=both, launch=LAUNCH)
    assert lengths(found) == {"synchronisation": 600, "launch": 1000}


def test_launches_are_no_shorter_than_the_profiler_can_make_them_and_then_all_is() -> None:
    launch = Waiting(shrinks_ns=1000 * LONGEST_STRETCH)
    # 3000, 1000 and 1000 without the profiler, at the least.
    found = timed(2000, loader=LOADER, gc=Waiting(keeps_ns=1000), launch=launch)
    assert lengths(found) == {"loader": 1200, "gc": 400, "launch": 400}


def test_what_few_of_the_profiled_steps_did_is_not_in_a_shorter_median_step() -> None:
    # One of three steps began 3000 ns late, which is 1000 in their mean.
    seen = {"host work": Waiting(keeps_ns=1000), "launch": Waiting(shrinks_ns=2000)}
    usual = {"host work": Waiting(), "launch": Waiting(shrinks_ns=2000)}
    found = waiting_parts(SeenWaiting(seen, usual), 1500, step_ns=STEP, basis="timed")
    assert lengths(found) == {"launch": 1500}
    # It may have been in the timed steps, too.
    assert found.parts["launch"].least_ns == 500
    # As much of it goes as makes the step as short as it was.
    partly = waiting_parts(SeenWaiting(seen, usual), 2750, step_ns=STEP, basis="timed")
    assert lengths(partly) == {"host work": 750, "launch": 2000}
    # A longer step has it all.
    longer = waiting_parts(SeenWaiting(seen, usual), 3000, step_ns=STEP, basis="timed")
    assert lengths(longer) == {"host work": 1000, "launch": 2000}


def test_a_first_step_does_not_tell_why_others_wait() -> None:
    seen = SeenWaiting({"loader": LOADER, "compilation": Waiting(keeps_ns=50_000)}, alone=True)
    found = waiting_parts(seen, 4000, step_ns=STEP, basis="timed")
    assert lengths(found) == {"loader": 0, "compilation": 0, "unexplained": 4000}
    assert {kind: (part.least_ns, part.most_ns) for kind, part in found.parts.items()} == {
        "loader": (0, 3000),
        "compilation": (0, 4000),
        "unexplained": (0, 4000),
    }
    # In a step that was itself the first one nothing is open.
    own = waiting_parts(seen, 53_000, step_ns=60_000, basis="host range")
    assert lengths(own) == {"loader": 3000, "compilation": 50_000}


@pytest.mark.parametrize("alone", [True, False])
def test_garbage_that_was_collected_in_timed_steps_is_as_long_as_the_device_cannot_hide(
    alone: bool,
) -> None:
    # The device is busy for 4000 of 10,000 ns, and Python collects for 7000.
    counted = {"garbage collection": 7000}
    seen = SeenWaiting({"launch": LAUNCH}, alone=alone, counted_ns=counted)
    found = waiting_parts(seen, 6000, step_ns=STEP, basis="timed")
    assert lengths(found) == {
        "garbage collection": 3000,
        "launch": 0 if alone else 2000,
        "unexplained": 3000 if alone else 1000,
    }
    assert found.parts["garbage collection"].least_ns == 3000


@pytest.mark.parametrize(
    ("counted_ns", "hidden_ns", "loader_ns"),
    [
        # Of 7000 the device hides as much as it did when it was profiled.
        (7000, 2500, 4500),
        # It cannot hide more than it is busy for, nor can the step wait for longer than it does.
        (7000, 5000, 3000),
        (9000, 0, 6000),
        # Profiled steps loaded, and timed ones did not.
        (0, 0, 0),
    ],
)
def test_what_was_counted_in_timed_steps_has_its_length_from_there(
    counted_ns: int, hidden_ns: int, loader_ns: int
) -> None:
    seen = SeenWaiting(
        {"loader": LOADER, "launch": Waiting(shrinks_ns=20_000)},
        counted_ns={"loader": counted_ns},
        hidden_ns={"loader": hidden_ns},
    )
    found = waiting_parts(seen, 6000, step_ns=STEP, basis="timed")
    # The rest is divided among what is left.
    assert {"loader": 0, "launch": 0, **lengths(found)} == {
        "loader": loader_ns,
        "launch": 6000 - loader_ns,
    }
    # Of that the device's 4000 ns hide all or nothing.
    assert found.parts["loader"].least_ns == max(0, min(6000, counted_ns - 4000))
    assert found.parts["loader"].most_ns == min(6000, counted_ns)


def test_a_timed_step_that_waits_longer_has_time_without_a_cause() -> None:
    found = timed(8000, loader=LOADER, launch=LAUNCH)
    assert lengths(found) == {"loader": 3000, "launch": 2000, "unexplained": 3000}
    # It may be of any of them.
    assert (found.parts["loader"].least_ns, found.parts["loader"].most_ns) == (3000, 6000)


def test_a_timed_step_that_waits_a_little_longer_waits_longer_for_all() -> None:
    found = timed(5200, loader=LOADER, launch=LAUNCH)
    assert lengths(found) == {"loader": 3120, "launch": 2080}


def test_a_timed_step_gives_ranges() -> None:
    found = timed(4000, loader=LOADER, launch=LAUNCH)
    # At the least the other one is as long as it was when it was seen.
    assert (found.parts["loader"].least_ns, found.parts["loader"].most_ns) == (2000, 3000)
    assert (found.parts["launch"].least_ns, found.parts["launch"].most_ns) == (1000, 2000)
    same = timed(5000, loader=LOADER, launch=LAUNCH)
    assert all(part.least_ns == part.nanoseconds == part.most_ns for part in same.parts.values())


def test_launches_of_a_profiled_step_are_certain_as_far_as_the_profiler_cannot_have_made_it() -> (
    None
):
    found = profiled(9000, launch=Waiting(shrinks_ns=9000))
    # 2.35 times as long at most: 4255 ns are left, and 1000 of them are busy.
    assert found.parts["launch"].least_ns == 3255
    found = profiled(9000, loader=LOADER, launch=Waiting(shrinks_ns=6000))
    assert (found.parts["loader"].least_ns, found.parts["launch"].least_ns) == (3000, 255)
    assert profiled(5000, launch=Waiting(shrinks_ns=5000)).parts["launch"].least_ns == 0


def test_nothing_seen_explains_nothing() -> None:
    assert lengths(timed(500)) == lengths(profiled(500)) == {"unexplained": 500}
    assert lengths(timed(0)) == lengths(profiled(0)) == {}


@pytest.mark.parametrize("seed", range(40))
def test_parts_add_up_and_lie_within_their_ranges(seed: int) -> None:
    pick = random.Random(seed)
    seen = {
        name: Waiting(*(pick.choice([0, pick.random() * 900]) for _ in range(2)))
        for name in "abcd"[: pick.randrange(5)]
    }
    whole = sum(part.total_ns for part in seen.values())
    idle_ns = pick.choice([0, round(whole), pick.randrange(5000)])
    host_ns = {name: pick.randrange(3000) for name in "abe" if pick.random() < 0.4}
    usual = {
        name: Waiting(part.keeps_ns * pick.random() * 1.5, part.shrinks_ns * pick.random())
        for name, part in seen.items()
    }
    counted = SeenWaiting(seen, usual, counted_ns=host_ns, hidden_ns={"a": pick.random() * 900})
    for found in (
        timed(idle_ns, **seen),
        profiled(idle_ns, **seen),
        waiting_parts(counted, idle_ns, step_ns=STEP, basis="timed"),
    ):
        assert sum(lengths(found).values()) == idle_ns
        for part in found.parts.values():
            assert 0 <= part.least_ns <= part.nanoseconds <= part.most_ns <= idle_ns
