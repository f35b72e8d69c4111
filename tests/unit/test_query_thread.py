"""A function that runs on a thread of polars, seen from the one that calls it."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import polars as pl
import pytest

from gpuprof.collectors.query_thread import on_query_thread


@on_query_thread
def thread_of_a_query(number: int, *, more: int = 0) -> tuple[int, str]:
    """The sum, by a query, and the thread that made it."""
    return pl.select(pl.lit(number) + more).item(), threading.current_thread().name


@on_query_thread
def thread_of_a_call_within() -> tuple[int, int]:
    inner = on_query_thread(threading.get_ident)
    return threading.get_ident(), inner()


def in_another_thread(found: list[tuple[int, str]]) -> None:
    found.append(thread_of_a_query(3))


def test_it_runs_on_another_thread_that_python_did_not_start() -> None:
    found, name = thread_of_a_query(2, more=5)
    assert found == 7
    assert name.startswith("Dummy-")


def test_calls_of_other_threads_and_calls_within_one_are_moved_once() -> None:
    found: list[tuple[int, str]] = []
    threads = [threading.Thread(target=in_another_thread, args=(found,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [number for number, _ in found] == [3] * 8
    assert all(name.startswith("Dummy-") for _, name in found)
    outer, inner = thread_of_a_call_within()
    assert outer == inner != threading.get_ident()


class Refused(Exception):
    pass


@pytest.mark.parametrize("error", [Refused("no"), SystemExit(3), KeyboardInterrupt()])
def test_what_it_raises_reaches_the_caller_as_it_is(error: BaseException) -> None:
    @on_query_thread
    def fails() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        fails()
    assert caught.value is error
    assert error.__context__ is None
    assert thread_of_a_query(1)[0] == 1


@pytest.fixture
def alarm() -> Iterator[Callable[[float], object]]:
    """Asks for an alarm in so many seconds, whose handler raises."""

    def handler(*_: object) -> None:
        raise Refused("too late")

    before = signal.signal(signal.SIGALRM, handler)
    yield partial(signal.setitimer, signal.ITIMER_REAL)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_what_a_handler_raises_ends_it(alarm: Callable[[float], object]) -> None:
    ended: list[str] = []

    @on_query_thread
    def goes_on() -> None:
        alarm(0.01)
        try:
            while True:
                pl.select(pl.lit(1))
        finally:
            ended.append(threading.current_thread().name)

    with pytest.raises(Refused, match="too late"):
        goes_on()
    # It is over when the caller goes on, and the thread is there for the next call.
    assert len(ended) == 1
    assert thread_of_a_query(4)[0] == 4


def test_a_call_that_is_over_when_a_handler_raises_is_not_waited_for(
    alarm: Callable[[float], object],
) -> None:
    @on_query_thread
    def sleeps() -> None:
        alarm(0.01)
        # What another thread raises here is raised after it.
        time.sleep(0.1)

    with pytest.raises(Refused, match="too late"):
        sleeps()
    assert thread_of_a_query(5)[0] == 5


def test_without_a_thread_to_wait_in_it_is_waited_for_by_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", fail)
    assert thread_of_a_query(6)[0] == 6
