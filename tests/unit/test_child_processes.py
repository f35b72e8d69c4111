"""Programs that must not outlive what started them."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuprof.profiler import child_processes
from gpuprof.profiler.child_processes import run_child, sigterm_raises


def run(source: str, folder: Path, *, timeout_s: float | None = None) -> int:
    with (folder / "output").open("wb") as output:
        command = (sys.executable, "-c", source)
        return run_child(command, stdout=output, stderr=output, timeout_s=timeout_s)


def lives(pid: int) -> bool:
    """Whether a process, which was not ours to wait for, still runs."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def ends(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not lives(pid)


def test_the_exit_status_and_the_output_come_back(tmp_path: Path) -> None:
    assert run("print('said'); raise SystemExit(3)", tmp_path) == 3
    assert (tmp_path / "output").read_text() == "said\n"
    assert run("import os; os.kill(os.getpid(), 9)", tmp_path) == -9


def test_a_text_is_for_the_shell(tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as output:
        assert run_child("echo $((1 + 1)); exit 4", stdout=output, stderr=output) == 4
    assert (tmp_path / "output").read_text() == "2\n"


def test_a_child_does_not_outlive_its_time(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run("import time; time.sleep(600)", tmp_path, timeout_s=0.1)


def test_a_child_is_ended_with_what_it_started(tmp_path: Path) -> None:
    source = (
        "import os, signal, subprocess, sys, time\n"
        "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(os.getpid(), inner.pid, flush=True)\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "time.sleep(600)\n"
    )

    with pytest.raises(SystemExit), sigterm_raises():
        run(source, tmp_path)

    pids = [int(pid) for pid in (tmp_path / "output").read_text().split()]
    assert len(pids) == 2
    assert all(ends(pid) for pid in pids)


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_while_a_child_starts_leaves_none(
    number: signal.Signals,
    raised: type[BaseException],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = []
    popen = subprocess.Popen

    def interrupted(*arguments: Any, **options: Any) -> Any:
        process = popen(*arguments, **options)
        started.append(process.pid)
        signal.raise_signal(number)
        return process

    monkeypatch.setattr(child_processes.subprocess, "Popen", interrupted)
    with pytest.raises(raised), sigterm_raises():
        run("import time; time.sleep(600)", tmp_path)

    assert not lives(started[0])


def test_a_second_sigterm_does_not_end_the_clean_up() -> None:
    former = signal.getsignal(signal.SIGTERM)
    cleaned = []

    @sigterm_raises()
    def work(inner: Callable[[], None], name: str) -> None:
        try:
            inner()
        finally:
            signal.raise_signal(signal.SIGTERM)
            cleaned.append(name)

    # Inner parts ask for it, too.
    with pytest.raises(SystemExit) as caught:
        work(lambda: work(lambda: signal.raise_signal(signal.SIGTERM), "inside"), "outside")

    assert caught.value.code == 128 + signal.SIGTERM
    assert cleaned == ["inside", "outside"]
    assert signal.getsignal(signal.SIGTERM) == former
