"""Attaching to a program: what is known of it, who is refused, and what happens inside it."""

import gc
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.manifest import Schedule
from gpuprof.profiler.cli import main
from gpuprof.profiler.run import current_session
from gpuprof.profiler.run.attach import attaching, inside, process_facts
from gpuprof.profiler.run.attach.messages import ReachedPhase, RecordRequest
from gpuprof.profiler.run.attach.process_facts import (
    ProcessFacts,
    facts_of,
    mapped_files,
    own_python,
    python_of,
    refuse,
    target_of,
)
from gpuprof.profiler.run.output import CaptureOutput
from gpuprof.profiler.run.recorded import Subject
from gpuprof.profiler.run.session_options import SessionOptions
from gpuprof.profiler.run.storing_messages import StoreAside, StoredAside, receive, send

MAPS = """
55d0a000-55d0b000 r--p 00000000 08:01 131 /opt/conda envs/x/bin/python3.14
7f0a0000-7f0b0000 rw-p 00000000 00:00 0
7f1a0000-7f1b0000 r-xp 00000000 08:01 132 /v/torch/_C.cpython-314-x86_64-linux-gnu.so (deleted)
7f1b0000-7f1c0000 r-xp 00000000 08:01 133 /v/torch/lib/libtorch_cpu.so
7ffc0000-7ffd0000 r-xp 00000000 00:00 0 [vdso]
"""
FACTS = ProcessFacts(
    process=7,
    user=0,
    command=("python", "train.py"),
    is_python=True,
    python="3.14",
    has_torch=True,
    is_in_our_container=True,
)


def test_the_files_that_a_process_has_mapped() -> None:
    names = ("python3.14", "_C.cpython-314-x86_64-linux-gnu.so", "libtorch_cpu.so")
    assert mapped_files(MAPS) == names


@pytest.mark.parametrize(
    ("file", "python"),
    [
        ("_C.cpython-314t-x86_64-linux-gnu.so", "3.14t"),
        ("libpython3.9.so.1.0", "3.9"),
        ("python3.12", "3.12"),
        # Which one it is links tell, and those are followed.
        ("python3", None),
        ("python3.12-config.txt", None),
        ("libc.so.6", None),
    ],
)
def test_which_python_a_file_tells(file: str, python: str | None) -> None:
    assert python_of([file]) == python


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("python -u -X dev train.py --lr 1", "train.py"),
        ("python -m pkg.train -x", "-m pkg.train"),
        ("python -c pass", "-c"),
        ("trainer:rank", "trainer:rank"),
    ],
)
def test_what_a_command_line_runs(words: str, title: str) -> None:
    assert target_of(words.split()).title == title


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"is_in_our_container": False}, "runs in another container or under another root"),
        ({"is_python": False}, "process 7 (python) is not Python"),
        ({"python": "3.13"}, "runs on Python 3.13 and gpuprof on 3.14: attaching needs the same"),
        ({"python": "3.14t"}, "runs on Python 3.14t and gpuprof on 3.14"),
        ({"has_torch": False}, "process 7 (train.py) has not imported torch"),
    ],
)
def test_who_cannot_be_attached_to(changed: dict[str, Any], said: str) -> None:
    refuse(FACTS, "3.14")
    refuse(replace(FACTS, python=None), "3.14")
    with pytest.raises(CommandError) as caught:
        refuse(replace(FACTS, **changed), "3.14")
    assert said in str(caught.value)


def test_what_is_known_of_this_process() -> None:
    facts = facts_of(os.getpid())
    assert facts.python == own_python()
    assert (facts.user, facts.is_python, facts.has_torch) == (os.geteuid(), True, True)
    refuse(facts, own_python())


def test_processes_that_have_ended() -> None:
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    # Without waiting for it: it stays as a zombie.
    while b"Z" not in Path(f"/proc/{ended.pid}/stat").read_bytes().rpartition(b")")[2]:
        time.sleep(0.01)
    with pytest.raises(CommandError, match="has ended"):
        facts_of(ended.pid)
    ended.wait()
    with pytest.raises(CommandError, match=f"there is no process {ended.pid}"):
        facts_of(ended.pid)


def test_a_process_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(CommandError, match="belongs to another user"):
        facts_of(os.getpid())


def test_why_the_kernel_does_not_allow_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scope = tmp_path / "ptrace_scope"
    monkeypatch.setattr(process_facts, "_PTRACE_SCOPE", scope)
    assert "does not allow ptrace" in process_facts.no_permission(7)
    scope.write_text("1\n")
    assert "kernel.yama.ptrace_scope is 1" in process_facts.no_permission(7)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(1, "Operation not permitted"), "no permission to reach into process"),
        (RuntimeError("Remote debugging is not enabled in the remote process"), "was started with"),
        (RuntimeError("PyRuntime address lookup failed"), "PyRuntime address lookup failed"),
    ],
)
def test_what_python_says_where_it_cannot_reach_a_process(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remote_exec(process: int, script: str) -> None:
        raise error

    monkeypatch.setattr(sys, "remote_exec", remote_exec, raising=False)
    with pytest.raises(CommandError, match=said):
        attaching.execute(os.getpid(), Path("begin.py"))


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python can attach")
def test_an_older_python_cannot_attach(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snap", "--attach", str(os.getpid())]) == 1
    assert "--attach needs Python 3.14 or later" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("1 --timed 3", "--timed goes with --attach"),
        ("1 --profiled 1", "--profiled goes with --attach"),
        ("1 --no-arguments", "--no-arguments goes with --attach"),
        ("--attach", "--attach needs the PID"),
        ("1 --attach --list", "--list asks none"),
        ("1 --attach --steps range", "--steps range and --step-range NAME go together"),
        ("1 --attach -o a.html", "--attach stores a capture"),
    ],
)
def test_options_that_do_not_go_together(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["snap", *words.split()]) == 2
    assert said in capsys.readouterr().err


# -- inside of the program: this process stands for it --------------------------------------------

Step = Callable[[], None]


@pytest.fixture
def step() -> Step:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters())

    def step() -> None:
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()

    step()
    return step


def hooks() -> tuple[object, ...]:
    """What a session puts its own into the place of, and where it hooks in."""
    return (
        torch.nn.Module._compiled_call_impl,
        torch.profiler.profile.step,
        torch.profiler.profile.start,
        dict(sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks),
        list(gc.callbacks),
        list(sys.path),
    )


@contextmanager
def asked(tmp_path: Path, *, timed: int = 1) -> Iterator[socket.socket]:
    """What asks, of this process; leaves nothing behind at the end."""
    before = hooks()
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    thread = threading.Thread(target=inside.serve, args=(theirs,))
    with ours:
        thread.start()
        subject = Subject(CaptureOutput(tmp_path / "c.gpuprof"), "t", "t", (), ceilings=False)
        send(
            ours, RecordRequest(subject, SessionOptions(Schedule.of(0, timed, 1), first_look=False))
        )
        yield ours
    # Our end is closed: the main thread is left alone, where it is here between instructions.
    while thread.is_alive():
        time.sleep(0.001)
    assert hooks() == before
    assert current_session.current is None


def answer(connection: socket.socket) -> Any:
    """What it says next; this thread comes between two instructions meanwhile."""
    while not select.select([connection], [], [], 0.01)[0]:
        pass
    return receive(connection)


def begun(connection: socket.socket) -> None:
    """Wait until the session has begun, on this thread."""
    while current_session.current is None:
        time.sleep(0.001)
    assert receive(connection) == ReachedPhase("searching")


def test_steps_are_recorded_and_handed_over(tmp_path: Path, step: Step) -> None:
    before = hooks()
    with asked(tmp_path) as connection:
        begun(connection)
        assert hooks() != before
        for _ in range(20):
            step()
        told = []
        while isinstance(message := answer(connection), ReachedPhase):
            told.append(message)
        assert told[-2:] == [ReachedPhase("timed"), ReachedPhase("profiled")]
        assert isinstance(message, StoreAside)
        seen = message.recorded.seen
        assert [one.phase for one in seen.steps if one.phase != "warmup"] == ["timed", "profiled"]
        assert seen.found_by == "optimizer steps (SGD)"
        # It may be read until it is stored.
        assert seen.trace is not None
        assert seen.trace.exists()
        send(connection, StoredAside(message.recorded.subject.output))
        assert answer(connection) is None
        assert not seen.trace.exists()


def test_who_asked_has_gone(tmp_path: Path, step: Step) -> None:
    for steps in (0, 4):
        with asked(tmp_path, timed=1000) as connection:
            begun(connection)
            for _ in range(steps):
                step()
        # And `asked` has seen that the hooks are gone.
        assert current_session.current is None
        assert not list(tmp_path.iterdir())


def test_one_capture_at_a_time(tmp_path: Path, step: Step) -> None:
    with asked(tmp_path) as first:
        begun(first)
        ours, theirs = socket.socketpair()
        with ours:
            second = threading.Thread(target=inside.serve, args=(theirs,))
            second.start()
            send(
                ours,
                RecordRequest(Subject(CaptureOutput(tmp_path), "t", "t", ()), SessionOptions()),
            )
            assert "is under way" in answer(ours)
            second.join()


def test_a_program_that_gpuprof_records_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current_session, "current", object())
    with asked(tmp_path) as connection:
        assert "gpuprof records it already" in answer(connection)
        monkeypatch.undo()


def test_ranks_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with asked(tmp_path) as connection:
        assert "it is one of 2 ranks" in answer(connection)
