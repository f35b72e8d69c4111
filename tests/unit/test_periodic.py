"""The thread of a live collector."""

import os
import threading

import pytest

from gpuprof.collectors.live.periodic import SLOW_INTERVAL_NS, PeriodicThread


def test_it_ticks_until_it_is_stopped() -> None:
    ticked = threading.Semaphore(0)
    thread = PeriodicThread(ticked.release, name="test", interval_ns=1_000_000)
    thread.start()
    assert ticked.acquire(timeout=60)
    assert ticked.acquire(timeout=60)
    assert thread.running
    assert thread.stop()
    assert not thread.running
    assert not thread.stop()
    assert thread.problem == ""


def test_a_tick_that_raises_is_the_last_one_and_says_why() -> None:
    ended = threading.Event()

    def fail() -> None:
        ended.set()
        raise OSError("no bus")

    thread = PeriodicThread(fail, name="test", interval_ns=1)
    thread.start()
    assert ended.wait(60)
    assert thread.stop()
    assert thread.problem == "stopped early: no bus"


def test_a_tick_that_does_not_return_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuprof.collectors.live.periodic._JOIN_SECONDS", 0.01)
    entered, release = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        release.wait(60)

    thread = PeriodicThread(hang, name="test", interval_ns=1)
    thread.start()
    assert entered.wait(60)
    assert not thread.stop()
    assert "did not answer" in thread.problem
    release.set()


def test_slowing_down_never_speeds_up() -> None:
    rare = PeriodicThread(lambda: None, name="test", interval_ns=5 * SLOW_INTERVAL_NS)
    rare.slow_down()
    assert rare.interval_ns == 5 * SLOW_INTERVAL_NS
    often = PeriodicThread(lambda: None, name="test", interval_ns=1)
    often.slow_down()
    assert often.interval_ns == SLOW_INTERVAL_NS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_no_such_thread() -> None:
    thread = PeriodicThread(lambda: None, name="test", interval_ns=1_000_000)
    thread.start()
    child = os.fork()
    if child == 0:
        os._exit(int(thread.running or thread.stop()))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert thread.stop()
