"""Programs that must not outlive what started them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuprof.profiler import child_processes
from gpuprof.profiler.child_processes import ending_signals_raise, run_child


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

    with pytest.raises(SystemExit), ending_signals_raise():
        run(source, tmp_path)

    pids = [int(pid) for pid in (tmp_path / "output").read_text().split()]
    assert len(pids) == 2
    assert all(ends(pid) for pid in pids)


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
# The guard of the child, and the child.
@pytest.mark.parametrize("at", [1, 2])
def test_a_signal_while_a_child_starts_leaves_none(
    number: signal.Signals,
    raised: type[BaseException],
    at: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = []
    popen = subprocess.Popen

    def interrupted(*arguments: Any, **options: Any) -> Any:
        process = popen(*arguments, **options)
        started.append(process.pid)
        if len(started) == at:
            signal.raise_signal(number)
        return process

    monkeypatch.setattr(child_processes.subprocess, "Popen", interrupted)
    with pytest.raises(raised), ending_signals_raise():
        run("import time; time.sleep(600)", tmp_path)

    assert len(started) == at
    assert all(ends(pid) for pid in started)


def test_a_second_sigterm_does_not_end_the_clean_up() -> None:
    former = signal.getsignal(signal.SIGTERM)
    cleaned = []

    @ending_signals_raise()
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


def test_what_kills_us_ends_the_child_and_all_that_it_started(tmp_path: Path) -> None:
    child = (
        "import os, subprocess, sys, time\n"
        "inner = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "inner = subprocess.Popen(inner, start_new_session=True)\n"
        "print(os.getpid(), inner.pid, os.getppid(), flush=True)\n"
        "time.sleep(600)\n"
    )
    outer = (
        "import sys\n"
        "from gpuprof.profiler.child_processes import run_child\n"
        f"run_child([sys.executable, '-c', {child!r}], stdout=sys.stdout.buffer, stderr=1)\n"
    )
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert pids[2] == process.pid
        assert lives(pids[0])
        process.kill()
    assert all(ends(pid) for pid in pids)


def test_what_outlives_a_child_that_ended_well_is_left_alone(tmp_path: Path) -> None:
    server = "import time; time.sleep(600)"
    source = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {server!r}])"
    assert run(f"{source}; print(p.pid)", tmp_path) == 0
    pid = int((tmp_path / "output").read_text())
    assert lives(pid)
    os.kill(pid, signal.SIGKILL)


def test_a_hangup_raises_where_it_is_not_ignored() -> None:
    with pytest.raises(SystemExit), ending_signals_raise():
        signal.raise_signal(signal.SIGHUP)
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_signals_raise():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, former)
