"""Garbage collections as Python itself tells them."""

import gc
import threading
from collections.abc import Iterator

import pytest

from gpuprof.collectors import host_events
from gpuprof.collectors.host_events import GarbageCollection
from gpuprof.collectors.live import garbage_collection
from gpuprof.collectors.live.garbage_collection import Collections
from gpuprof.collectors.live.unix_clock import unix_ns
from gpuprof.collectors.steps.clock import StepClock


@pytest.fixture
def counted() -> Iterator[None]:
    gc.disable()
    garbage_collection.install()
    yield
    garbage_collection.remove()
    gc.enable()


def test_nothing_is_known_where_nothing_counts() -> None:
    garbage_collection.remove()
    before = list(gc.callbacks)
    recorder = Collections()
    recorder.start()
    gc.collect()
    assert garbage_collection.paused_ns() is None
    assert garbage_collection.collected() == ()
    assert recorder.stop() == {}
    assert gc.callbacks == before


@pytest.mark.usefixtures("counted")
def test_collections_are_counted_by_generation() -> None:
    gc.collect(0)
    gc.collect(0)
    gc.collect(2)
    youngest, _, oldest = garbage_collection.collected()
    assert (youngest.collections, oldest.collections) == (2, 1)
    assert 0 < youngest.paused_ns
    assert 0 < oldest.paused_ns
    assert garbage_collection.paused_ns() == sum(
        generation.paused_ns for generation in garbage_collection.collected()
    )


@pytest.mark.usefixtures("counted")
def test_a_profile_has_one_row_for_each_collection_that_ends_in_it() -> None:
    recorder = Collections()
    gc.collect()
    recorder.start()
    began_ns = unix_ns()
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    gc.collect()
    gc.collect(0)
    ended_ns = unix_ns()
    rows = recorder.stop()["ranges"]
    gc.collect()
    assert [row["name"] for row in rows] == ["garbage collection"] * 2
    assert {row["domain"] for row in rows} == {"gpuprof"}
    assert {row["thread"] for row in rows} == {threading.get_native_id()}
    first, second = (host_events.decode(str(row["host_event"])) for row in rows)
    assert isinstance(first, GarbageCollection)
    assert isinstance(second, GarbageCollection)
    assert (first.generation, second.generation) == (2, 0)
    assert first.collected >= 1
    times_ns = [int(str(row[end])) for row in rows for end in ("start_ns", "end_ns")]
    assert times_ns == sorted(times_ns)
    # Two clocks, read a moment apart.
    assert began_ns - 1_000_000 < times_ns[0]
    assert times_ns[-1] <= ended_ns
    # A second profile begins with none.
    recorder.start()
    assert recorder.stop() == {"ranges": []}


@pytest.mark.usefixtures("counted")
def test_a_step_knows_how_long_collections_took_in_it() -> None:
    clock = StepClock("timed", device_events=False)
    clock.boundary()
    gc.collect()
    clock.boundary()
    clock.boundary()
    with_collection, without = clock.read()
    assert with_collection.garbage_collection_ns is not None
    assert 0 < with_collection.garbage_collection_ns <= with_collection.host_ns
    assert without.garbage_collection_ns == 0


def test_a_step_does_not_know_where_nothing_counts() -> None:
    clock = StepClock("timed", device_events=False)
    clock.boundary()
    clock.boundary()
    (step,) = clock.read()
    assert step.garbage_collection_ns is None
