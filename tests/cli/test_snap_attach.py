"""`gpuprof snap --attach`: steps of a program that gpuprof did not start.

Python 3.14 runs the script in it. With any other the program runs the same script itself, where it
is told of it, so that everything but `sys.remote_exec` is tested there too.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fork_server import ForkServer
from training_script import FEW, write

from gpuprof.collectors import storage
from gpuprof.profiler.cli import main
from gpuprof.profiler.run.attach import attaching

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]
NEEDS_REMOTE_EXECUTION = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="needs Python 3.14, which runs scripts in other processes"
)
# A busy machine is no fault.
PATIENT = ("--timeout", "200")
BEGINNING = """
from pathlib import Path
def state():
    return torch.nn.Module._compiled_call_impl, torch.profiler.profile.step, list(sys.path)
before = state()
train(1)
Path("pid.new").write_text(str(os.getpid()))
os.rename("pid.new", "pid")
"""
UNTIL_STORED = """
while not Path("c.gpuprof", "analysis.json").exists():
    train(1)
    time.sleep(0.001)
"""
TOLD = """
while not Path("script").exists():
    train(1)
exec(Path(Path("script").read_text()).read_text(), {})
"""
# The end of a capture comes after that of its being stored.
UNTIL_LEFT = """
while state() != before:
    time.sleep(0.001)
print("as before")
"""


@pytest.fixture
def told_program(
    tmp_path: Path,
    gpuprof_environment: dict[str, str],
    server: ForkServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], "subprocess.CompletedProcess[str]"]:
    """Run a program that is told of the script, and attach to it; returns how it ended."""

    def execute(process: int, script: Path) -> None:
        (tmp_path / "script.new").write_text(str(script))
        (tmp_path / "script.new").rename(tmp_path / "script")

    monkeypatch.setattr(attaching, "execute", execute)
    monkeypatch.setattr(attaching, "refuse_own_python", lambda: None)
    # Of the process that runs all other tests as well.
    monkeypatch.setattr(attaching, "give_way", lambda: None)
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "COLUMNS"):
        monkeypatch.setenv(name, gpuprof_environment[name])

    def run(source: str, *options: str) -> "subprocess.CompletedProcess[str]":
        ended: list[subprocess.CompletedProcess[str]] = []
        script = write(tmp_path, BEGINNING + source)
        program = threading.Thread(
            target=lambda: ended.append(
                server.run(script, folder=tmp_path, environment=gpuprof_environment)
            )
        )
        program.start()
        attach = ("snap", "--attach", process_of(tmp_path), *PATIENT)
        assert main([*attach, *options]) == 0
        program.join()
        return ended[0]

    return run


def process_of(folder: Path) -> str:
    """The number of the program in `folder`, once it has begun."""
    while not (folder / "pid").exists():
        time.sleep(0.01)
    return (folder / "pid").read_text()


def test_the_next_steps_are_recorded_and_the_program_goes_on_as_before(
    tmp_path: Path, told_program: Gpuprof, capsys: pytest.CaptureFixture[str]
) -> None:
    done = told_program(TOLD + UNTIL_STORED + UNTIL_LEFT, *FEW, "-o", "c.gpuprof", "--json")
    assert (done.returncode, done.stdout) == (0, "as before\n"), done.stderr
    assert "gpuprof" not in done.stderr
    said = capsys.readouterr()
    assert json.loads(said.out)["attached"]["capture"] == "c.gpuprof"
    assert "gpuprof: timing 2 steps\ngpuprof: profiling 1 steps\n" in said.err
    analysis = json.loads((tmp_path / "c.gpuprof" / "analysis.json").read_bytes())
    assert (analysis["steps"]["timed"], analysis["steps"]["profiled"]) == (2, 1)
    (process,) = storage.load(tmp_path / "c.gpuprof").processes
    assert len(process.command) > 1


def test_a_program_that_ends_is_stored_as_far_as_it_got(
    tmp_path: Path, told_program: Gpuprof
) -> None:
    # It goes on until its steps are timed, which takes the thread of ours a moment to begin.
    source = TOLD + "while state() == before:\n    train(1)\ntrain(8)\n"
    done = told_program(source, "--timed", "1000000", "-o", "c.gpuprof", "--no-arguments")
    assert done.returncode == 0, done.stderr
    analysis = json.loads((tmp_path / "c.gpuprof" / "analysis.json").read_bytes())
    assert analysis["steps"]["timed"] >= 1
    (process,) = storage.load(tmp_path / "c.gpuprof").processes
    assert len(process.command) == 1


# -- with Python's own remote execution -----------------------------------------------------------


@contextmanager
def program(folder: Path, source: str, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """A program of its own, which has begun. It is ended with the context."""
    command = [sys.executable, *options, write(folder, BEGINNING + source)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    started = subprocess.Popen(command, cwd=folder, text=True, **pipes)
    try:
        process_of(folder)
        yield started
    finally:
        started.kill()
        started.communicate()


@NEEDS_REMOTE_EXECUTION
def test_a_running_program_is_attached_to(tmp_path: Path, cold_gpuprof: Gpuprof) -> None:
    source = UNTIL_STORED + UNTIL_LEFT + "print('polars' in sys.modules)"
    with program(tmp_path, source) as running:
        snap = cold_gpuprof(
            *("snap", "--attach", str(running.pid), *PATIENT, *FEW, "-o", "c.gpuprof")
        )
        assert snap.returncode == 0, snap.stderr
        output, errors = running.communicate()
    assert snap.stdout == "c.gpuprof is stored; gpuprof summary c.gpuprof shows it\n"
    # What stores is not loaded there.
    assert (running.returncode, output) == (0, "as before\nFalse\n"), errors
    assert "gpuprof" not in errors
    analysis = json.loads((tmp_path / "c.gpuprof" / "analysis.json").read_bytes())
    assert (analysis["title"], analysis["steps"]["profiled"]) == (
        "script.py (gpuprof snap --attach)",
        1,
    )


@NEEDS_REMOTE_EXECUTION
def test_a_program_that_stays_in_c_is_not_waited_for_and_runs_nothing_later(
    tmp_path: Path, cold_gpuprof: Gpuprof
) -> None:
    # Until its standard input ends.
    source = "sys.stdin.buffer.raw.read()\ntrain(3)\nprint(sorted(sys.modules))"
    with program(tmp_path, source) as running:
        snap = cold_gpuprof("snap", "--attach", str(running.pid), "--timeout", "0.5")
        assert snap.returncode == 1
        assert "has not taken the request in 0.5 s" in snap.stderr
        output, errors = running.communicate()
    assert (running.returncode, errors) == (0, "")
    assert "'gpuprof'" not in output


@NEEDS_REMOTE_EXECUTION
@pytest.mark.parametrize(
    ("options", "source", "said"),
    [
        (("-X", "disable-remote-debug"), UNTIL_STORED, "-X disable-remote-debug"),
        ((), "os.environ['RANK'] = '0'; os.environ['WORLD_SIZE'] = '2'" + UNTIL_STORED, "2 ranks"),
    ],
    ids=["switched off", "ranks"],
)
def test_programs_that_cannot_be_attached_to(
    tmp_path: Path, cold_gpuprof: Gpuprof, options: tuple[str, ...], source: str, said: str
) -> None:
    with program(tmp_path, source, *options) as running:
        snap = cold_gpuprof("snap", "--attach", str(running.pid), *PATIENT)
        assert snap.returncode == 1
        assert said in " ".join(snap.stderr.split())
        assert running.poll() is None
