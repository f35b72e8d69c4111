"""However a program ends and whatever it leaves, `gpuprof run` ends as it does, with a capture."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from training_script import FEW, write

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.profiler.run.run_target import exit_status

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]


def phases(capture: Capture) -> list[str]:
    return capture.steps["phase"].to_list()


CODES = """
import enum
class Code(enum.IntEnum):
    BAD = 3
class Number(int):
    def __int__(self): raise ValueError
"""


@pytest.mark.parametrize("code", ["not []", "Code.BAD", "('why', 2)"])
def test_any_exit_code_is_pythons_and_a_plain_number(
    tmp_path: Path, gpuprof: Gpuprof, code: str
) -> None:
    source = f"{CODES}\nraise SystemExit({code})"
    plain = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False
    )
    ours = gpuprof("run", "-q", "-o", "out.gpuprof", "-c", source)
    assert (ours.returncode, ours.stderr) == (plain.returncode, plain.stderr)
    assert storage.load(tmp_path / "out.gpuprof").processes[0].exit_code == plain.returncode


@pytest.mark.parametrize(
    ("code", "status"),
    [(None, 0), (7, 7), (-1, 255), (256, 0), (2**32 + 3, 3), (2**70, 255), ("why", 1), (0.5, 1)],
)
def test_an_exit_code_is_the_status_that_python_makes_of_it(code: object, status: int) -> None:
    source = f"raise SystemExit({code!r})"
    plain = subprocess.run([sys.executable, "-c", source], capture_output=True, check=False)
    assert exit_status(SystemExit(code)) == plain.returncode == status


@pytest.mark.parametrize(
    ("main", "profiled"),
    [
        # The main thread is in Python, and can end the profile of many steps.
        ("for done in range(10**9): train(1)", 2),
        # It is in C: what is left is the second step's.
        ("done = 100\nimport ctypes\nctypes.CDLL(None).pause()", 1),
    ],
)
def test_a_watchdog_that_leaves_ends_the_program(
    tmp_path: Path, gpuprof: Gpuprof, main: str, profiled: int
) -> None:
    # By steps, not by seconds: on a busy machine the profile begins late.
    watchdog = """
    def watch():
        while done < 100:
            time.sleep(0.01)
        time.sleep(0.1)
        os._exit(5)
    train(3)
    done = 0
    threading.Thread(target=watch).start()
    """
    script = write(tmp_path, textwrap.dedent(watchdog) + main)
    counts = ("--warmup", "1", "--timed", "2", "--profiled", "1000000")
    ours = gpuprof("run", "-q", *counts, "-o", "out.gpuprof", script)
    assert (ours.returncode, ours.stdout) == (5, "")
    capture = storage.load(tmp_path / "out.gpuprof")
    assert (capture.processes[0].ending, capture.processes[0].exit_code) == ("exit", 5)
    assert min(phases(capture).count("profiled"), 2) == profiled
    assert capture.kernels.height > 0


# Each damage before the training or after it: what matters is whether we have begun to store.
@pytest.mark.parametrize(
    ("damage", "when"),
    [
        ("sys.stdout.close()", "after"),
        ("sys.stdout = sys.stderr = None", "before"),
        ("sys.stdout = sys.stderr = open(os.devnull, 'w'); sys.stdout.close()", "after"),
        ("os.close(1); os.close(2)", "before"),
        ("os.close(1); os.close(2); log = open('mine.txt', 'wb', 0); log.write(b'mine')", "after"),
        ("sys.setrecursionlimit(60)", "before"),
        ("sys.stderr.reconfigure(encoding='ascii')", "after"),
    ],
)
def test_what_a_program_does_to_its_surroundings_does_not_reach_us(
    tmp_path: Path, gpuprof: Gpuprof, damage: str, when: str
) -> None:
    lines = [damage, "train(9)"] if when == "before" else ["train(9)", damage]
    # Without its training, which changes no exit code.
    plain = subprocess.run(
        [sys.executable, "-c", f"import os, sys\n{damage}"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    ours = gpuprof("run", *FEW, "-o", "out.gpuprof", write(tmp_path, "\n".join(lines)))
    assert ours.returncode == plain.returncode, ours.stderr
    capture = storage.load(tmp_path / "out.gpuprof")
    assert phases(capture).count("profiled") == 1
    assert capture.processes[0].warnings == ()
    assert ours.stderr.rstrip().endswith("gpuprof report out.gpuprof")
    if "mine.txt" in damage:
        assert (tmp_path / "mine.txt").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("mebibytes", "when"), [(20, "after"), (200, "before"), (200, "after"), (2000, "after")]
)
def test_without_memory_the_program_ends_as_it_does(
    tmp_path: Path, gpuprof: Gpuprof, mebibytes: int, when: str
) -> None:
    limit = f"""
import resource
pages = int(open('/proc/self/statm').read().split()[0])
limit = pages * resource.getpagesize() + ({mebibytes} << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
"""
    train = "train(9)\n"
    script = write(tmp_path, limit + train if when == "before" else train + limit)
    ours = gpuprof("run", "-q", *FEW, "-o", "out.gpuprof", script)
    stored = storage.is_capture(tmp_path / "out.gpuprof")
    lines = [line for line in ours.stderr.splitlines() if line.startswith("gpuprof: ")]
    # A capture that is lost is one line, and no success.
    assert (ours.returncode, bool(lines)) in ((0, False), (1, True)), ours.stderr
    assert stored or len(lines) == 1
    if mebibytes == 200:
        assert "MiB of address space are left" in lines[0]
    if mebibytes == 2000:
        assert stored
        assert lines == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_without_a_descriptor_the_program_ends_as_it_does(
    tmp_path: Path, gpuprof: Gpuprof, when: str
) -> None:
    use_up = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
files = []
try:
    while True:
        files.append(open(os.devnull))
except OSError:
    pass
"""
    train = "train(9)\nprint('trained')\n"
    script = write(tmp_path, use_up + train if when == "before" else train + use_up)
    ours = gpuprof("run", "-q", *FEW, "-o", "out.gpuprof", script)
    assert (ours.returncode, ours.stdout) == (0, "trained\n")
    # The trace of the steps could not be written, but another process stores what there is.
    capture = storage.load(tmp_path / "out.gpuprof")
    assert phases(capture).count("timed") == 2
    assert (capture.kernels.height > 0) == (when == "after")


@pytest.mark.parametrize("failure", ["PanicException", "MemoryError"])
def test_a_failure_of_ours_does_not_end_the_training_and_is_seen(
    tmp_path: Path, gpuprof: Gpuprof, failure: str
) -> None:
    # What polars raises where no thread can be started is named so, and no Exception.
    script = write(
        tmp_path,
        f"""
        class PanicException(BaseException): pass
        from gpuprof.profiler.run import recording
        def fail(*_, **__): raise {failure}('no thread')
        recording.ProcessInfo = fail
        train(9)
        print('trained')
        """,
    )
    ours = gpuprof("run", "-q", *FEW, "-o", "out.gpuprof", script)
    assert (ours.returncode, ours.stdout) == (1, "trained\n")
    assert ours.stderr == f"gpuprof: the capture could not be stored: {failure}: no thread\n"


def test_where_nothing_can_be_watched_the_program_runs(
    tmp_path: Path, gpuprof_environment: dict[str, str]
) -> None:
    folder = tmp_path / "sitecustomize"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import threading\n"
        "start = threading.Thread.start\n"
        "def fail(thread):\n"
        "    if 'gpuprof' in str(thread._target) or isinstance(thread, threading.Timer):\n"
        '        raise RuntimeError("can\'t start new thread")\n'
        "    start(thread)\n"
        "threading.Thread.start = fail\n"
    )
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "gpuprof", "run", "-q", "-o", "out.gpuprof",
         write(tmp_path, "train(2)\nprint('trained')")],
        cwd=tmp_path,
        env={**gpuprof_environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "trained\n")
    warnings = storage.load(tmp_path / "out.gpuprof").processes[0].warnings
    assert any("can't start new thread" in warning for warning in warnings)


@pytest.mark.parametrize(("after", "profiled"), [(0, 0), (9, 1)])
def test_a_profiler_of_the_programs_own_among_the_profiled_steps_does_not_cost_the_kernels(
    tmp_path: Path, gpuprof: Gpuprof, after: int, profiled: int
) -> None:
    script = write(
        tmp_path,
        f"""
        train(4)
        with torch.profiler.profile() as theirs:
            train(2)
        print(sum(event.count for event in theirs.key_averages() if event.key == 'aten::addmm'))
        train({after})
        """,
    )
    ours = gpuprof("run", "-q", *FEW, "-o", "out.gpuprof", script)
    assert (ours.returncode, ours.stdout) == (0, "2\n")
    capture = storage.load(tmp_path / "out.gpuprof")
    # The first look is a profiled step too, in the place of warm-up steps that were not counted.
    assert phases(capture).count("profiled") == 1
    assert (phases(capture).index("profiled") > 0) == bool(profiled)
    assert capture.kernels.height > 0
    (warning,) = capture.processes[0].warnings
    assert ("later ones were profiled" if profiled else "they were dropped") in warning
