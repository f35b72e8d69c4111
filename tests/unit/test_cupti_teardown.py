"""CUPTI is detached when a profile has ended, by calls that are made for it."""

import os
import threading
import time

import pytest

from gpuprof.collectors.live import cuda, cupti_teardown


class Kineto:
    """Its thread waits for a CUDA call after the profile; `stop` begins it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, calls_needed: int) -> None:
        self.calls = 0
        self._needed = calls_needed
        self._called = threading.Event()
        monkeypatch.setattr(cuda, "in_use", lambda: True)
        monkeypatch.setattr(cuda, "current_device", self._call)

    def _call(self) -> int:
        self.calls += 1
        if self.calls >= self._needed:
            self._called.set()
        return 0

    def stop(self) -> threading.Thread | None:
        if os.environ.get("TEARDOWN_CUPTI") != "1":
            return None
        thread = threading.Thread(target=self._called.wait, args=(30,), daemon=True)
        thread.start()
        return thread


def test_the_profile_ends_once_the_thread_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    kineto = Kineto(monkeypatch, calls_needed=3)
    cupti_teardown.ask()
    with cupti_teardown.awaited():
        thread = kineto.stop()
    assert thread is not None
    thread.join(1)
    assert not thread.is_alive()
    assert kineto.calls >= 3
    assert "TEARDOWN_CUPTI" not in os.environ


def test_a_thread_that_stays_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    monkeypatch.setattr(cupti_teardown, "_LONGEST_S", 0.02)
    kineto = Kineto(monkeypatch, calls_needed=10**9)
    begun = time.monotonic()
    cupti_teardown.ask()
    with cupti_teardown.awaited():
        thread = kineto.stop()
    assert thread is not None
    assert thread.is_alive()
    assert kineto.calls
    assert time.monotonic() - begun < 20
    kineto._called.set()


@pytest.mark.parametrize("decided", ["0", "1"])
def test_what_the_program_decided_stays(monkeypatch: pytest.MonkeyPatch, decided: str) -> None:
    monkeypatch.setenv("TEARDOWN_CUPTI", decided)
    kineto = Kineto(monkeypatch, calls_needed=1)
    cupti_teardown.ask()
    with cupti_teardown.awaited():
        thread = kineto.stop()
    assert (thread is not None) == (decided == "1")
    assert bool(kineto.calls) == (decided == "1")
    assert os.environ["TEARDOWN_CUPTI"] == decided


def test_what_torch_takes_back_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    kineto = Kineto(monkeypatch, calls_needed=1)
    cupti_teardown.ask()
    # What torch.profiler does where inductor replays CUDA graphs.
    monkeypatch.setenv("TEARDOWN_CUPTI", "0")
    with cupti_teardown.awaited():
        kineto.stop()
    assert kineto.calls == 0
    assert os.environ["TEARDOWN_CUPTI"] == "0"


def test_of_two_profiles_at_once_the_last_takes_the_wish_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    Kineto(monkeypatch, calls_needed=1)
    cupti_teardown.ask()
    # One that another thread began and that is left alone.
    cupti_teardown.ask()
    with cupti_teardown.awaited():
        pass
    assert "TEARDOWN_CUPTI" not in os.environ
