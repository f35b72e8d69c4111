"""Captures on demand: who may be asked, when a step asks, what is kept."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.steps.sources import Mark
from gpuprof.profiler.cli import main
from gpuprof.profiler.run.on_demand import waiting_processes as processes
from gpuprof.profiler.run.on_demand.numbered_captures import NumberedCaptures
from gpuprof.profiler.run.on_demand.program_steps import ProgramSteps
from gpuprof.profiler.run.on_demand.request_signals import (
    RequestSignal,
    signal_name,
    signal_number,
)
from gpuprof.profiler.run.on_demand.slow_steps import LEAST, SlowStepDetector
from gpuprof.profiler.run.session_options import SessionOptions

MS = 1_000_000


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the files of programs that wait."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(processes.tempfile, "gettempdir", lambda: str(tmp_path / "absent"))
    return tmp_path / "gpuprof"


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What a handler of SIGUSR2 in this process was told."""
    said: list[str] = []
    listening = RequestSignal(
        signal.SIGUSR2.value, lambda frame: said.append("asked"), lambda: said.append("taken")
    )
    with listening.watching():
        yield said


def waiting(process: int | None = None) -> processes.WaitingProcess:
    own = processes.own_process("train.py", Path("/w/run.gpuprof"), signal.SIGUSR2.value, 5)
    return own if process is None else msgspec.structs.replace(own, process=process)


def test_a_program_that_waits_is_found_and_asked(runtime: Path, heard: list[str]) -> None:
    with processes.announced(waiting()):
        assert processes.waiting_processes() == (waiting(),)
        assert main(["snap"]) == 0
        assert main(["snap", str(os.getpid())]) == 0
        assert runtime.stat().st_mode & 0o777 == 0o700
    assert heard == ["asked", "asked"]
    assert processes.waiting_processes() == ()
    assert list(runtime.iterdir()) == []


def test_a_process_that_does_not_wait_is_sent_nothing(
    runtime: Path, heard: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    # The signal would end it.
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    try:
        with processes.announced(waiting()):
            assert main(["snap", str(other.pid)]) == 1
            assert "nothing was sent" in capsys.readouterr().err
            with pytest.raises(CommandError, match="does not wait any more"):
                processes.ask(waiting(other.pid))
        # A file of an earlier process of the same number, or of one that lost its handler.
        ticks = processes._start_ticks(other.pid)
        stale = msgspec.structs.replace(waiting(other.pid), start_ticks=ticks)
        with processes.announced(stale):
            assert processes.waiting_processes() == ()
            assert list(runtime.iterdir()) == []
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert heard == []


def test_of_several_one_has_to_be_named(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two = (waiting(11), waiting(12))
    monkeypatch.setattr(processes, "waiting_processes", lambda: two)
    assert main(["snap"]) == 1
    assert "11 (train.py), 12 (train.py)" in capsys.readouterr().err
    assert main(["snap", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_folder_that_others_can_write_to_is_not_looked_in(runtime: Path) -> None:
    runtime.mkdir(mode=0o777)
    runtime.chmod(0o777)
    (runtime / "1.json").write_bytes(msgspec.json.encode(waiting()))
    assert processes.waiting_processes() == ()
    with pytest.raises(CommandError, match="only you can write"), processes.announced(waiting()):
        pass


def test_a_handler_of_the_program_takes_the_place_of_ours(heard: list[str]) -> None:
    assert signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL
    # What it has already.
    assert signal.signal(signal.SIGUSR2, signal.SIG_DFL) == signal.SIG_DFL
    os.kill(os.getpid(), signal.SIGUSR2)
    own: list[int] = []
    assert signal.signal(signal.SIGUSR2, lambda number, frame: own.append(number)) == signal.SIG_DFL
    os.kill(os.getpid(), signal.SIGUSR2)
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    assert heard == ["asked", "taken"]
    assert own == [signal.SIGUSR2]


def test_a_signal_that_somebody_handles_is_not_taken() -> None:
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        listening = RequestSignal(signal.SIGUSR2.value, lambda frame: None, lambda: None)
        with pytest.raises(CommandError, match="SIGUSR2 is handled"):
            listening.refuse_taken()
        assert signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize("name", ["USR1", "SIGUSR2", "RTMIN+3", "sigrtmin+0"])
def test_names_of_signals(name: str) -> None:
    number = signal_number(name)
    assert signal_number(signal_name(number)) == number


@pytest.mark.parametrize("name", ["KILL", "TERM", "RTMIN+99", "RTMIN-1", "12", ""])
def test_other_signals_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not USR1"):
        signal_number(name)


def test_slow_is_over_so_many_times_the_p95_of_the_steps_before() -> None:
    slow = SlowStepDetector(1.2)
    # Unknown while there are too few, however slow.
    assert not any(slow.is_slow(length) for length in (10 * MS,) * (LEAST - 1))
    assert not slow.is_slow(100 * MS)
    # The P95 of 63 steps of 10 ms and one of 100 ms is 10 ms.
    assert slow.p95_ns == 10 * MS
    assert not slow.is_slow(12 * MS)
    assert slow.is_slow(12 * MS + 1)
    slow.begin_again()
    assert not slow.is_slow(100 * MS)


def test_each_capture_has_a_number_that_is_free(tmp_path: Path) -> None:
    (tmp_path / "run.2.gpuprof").mkdir()
    captures = NumberedCaptures(tmp_path / "run.gpuprof", 2)
    names = [captures.next().path.name for _ in range(2)]
    assert names == ["run.1.gpuprof", "run.3.gpuprof"]


class Listener:
    """A session."""

    def __init__(self) -> None:
        self.boundaries = 0

    def boundary(self, mark: Mark) -> None:
        self.boundaries += 1

    def restarted(self, mark: Mark) -> None:
        raise AssertionError


def test_steps_are_counted_on_while_a_session_listens() -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    told: list[tuple[int, bool]] = []

    def stepped(number: int, length_ns: int | None) -> None:
        told.append((number, length_ns is None))
        if number == 4:
            search.install()

    steps = ProgramSteps(SessionOptions(steps="optimizer"), stepped)
    listener = Listener()
    search = steps.told_to(listener)
    steps.install()
    try:
        for _ in range(7):
            optimizer.step()
        assert search.leader is not None
        search.remove()
        optimizer.step()
        optimizer.step()
    finally:
        steps.remove()
    optimizer.step()
    # Step 5 begins with the first of them.
    assert listener.boundaries == 4
    assert steps.steps == 9
    # The first is seen as it ends; the one after the session has no beginning.
    assert told == [(2, False), (3, False), (4, False), (8, True), (9, False)]
