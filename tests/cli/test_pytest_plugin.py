"""The pytest plugin, in pytest sessions of their own."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fork_server import ForkServer

Pytest = Callable[..., "subprocess.CompletedProcess[str]"]

TESTS = """\
import pytest, torch

@pytest.mark.gpuprof(budget=20.0)
def test_product(gpubench):
    x = torch.ones(8, 8)
    assert gpubench(lambda: (x @ x)).sum() == 512

def test_other():
    pass
"""


@pytest.fixture
def run_pytest(tmp_path: Path, gpuprof_environment: dict[str, str], server: ForkServer) -> Pytest:
    """Run pytest in the test's own folder, which holds test_speed.py."""
    (tmp_path / "test_speed.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return server.run(
            *("-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments),
            folder=tmp_path,
            environment=gpuprof_environment,
        )

    return run


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.email=a@b.c", "-c", "user.name=a")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_without_an_option_a_benchmark_is_a_test_that_calls_once(
    run_pytest: Pytest, tmp_path: Path
) -> None:
    done = run_pytest()

    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    assert list(tmp_path.glob("*.gpuprof")) == []


def test_the_fixture_needs_the_mark(run_pytest: Pytest, tmp_path: Path) -> None:
    (tmp_path / "test_speed.py").write_text("def test_a(gpubench): ...\n")

    done = run_pytest()

    assert "test_a uses gpubench: mark it @pytest.mark.gpuprof" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpuprof-gate=HEAD", "--gpuprof-record=x"), "exclude each other"),
        (("--gpuprof-gate=HEAD",), "--base needs a git repository"),
        (("--gpuprof-gate=HEAD", "--gpuprof-steps=5,20"), "give three numbers: 5,20,2"),
        (("--gpuprof-gate=HEAD", "--gpuprof-time-limit=soon"), "write it like 90 s or 10 min"),
    ],
)
def test_what_cannot_work_is_one_line(
    run_pytest: Pytest, arguments: tuple[str, ...], said: str
) -> None:
    done = run_pytest(*arguments)

    assert said in done.stderr + done.stdout
    assert done.returncode == 4
    assert "Traceback" not in done.stderr + done.stdout


def test_recording_stores_a_capture_of_each_marked_test_and_runs_no_other(
    run_pytest: Pytest, tmp_path: Path
) -> None:
    done = run_pytest("--gpuprof-record=out", "--gpuprof-steps=1,4,1")

    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 deselected" in done.stdout
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["test_speed.test_product.gpuprof"]


def test_recording_only_some_leaves_the_others_out(run_pytest: Pytest, tmp_path: Path) -> None:
    done = run_pytest("--gpuprof-record=out", "--gpuprof-only=test_speed.test_absent")

    assert "2 deselected" in done.stdout
    assert not (tmp_path / "out").exists()


def test_with_the_gate_what_regressed_fails_and_the_rest_passes(
    run_pytest: Pytest, tmp_path: Path
) -> None:
    (tmp_path / "gpuprof.toml").write_text(
        "[gate]\npairs = [2]\n[[budget]]\nmatch = 'tests/*'\nkernels = { max_new = 0 }\n"
    )
    changed = "    assert gpubench(lambda: (x @ x)"
    second = TESTS.replace("test_product", "test_changed").replace("test_other", "test_another")
    (tmp_path / "test_speed.py").write_text(TESTS + second.partition("\n")[2])
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    second = second.replace(changed, f"{changed}.cumsum(0)").replace("512", "2304")
    (tmp_path / "test_speed.py").write_text(TESTS + second.partition("\n")[2])

    done = run_pytest("--gpuprof-gate=HEAD", "--gpuprof-steps=1,4,1")

    assert done.returncode == 1, done.stdout + done.stderr
    assert "REGRESSED kernel names: 1 new, 0 gone" in done.stdout
    assert "FAILED test_speed.py::test_changed" in done.stdout
    assert "test_product" not in done.stdout.partition("short test summary")[2]


@pytest.mark.parametrize("option", ["--gpuprof-gate=HEAD", "--gpuprof-record=out"])
def test_beside_other_workers_nothing_is_measured(run_pytest: Pytest, option: str) -> None:
    done = run_pytest(option, "-n", "1")

    assert "needs the machine for itself: run without xdist (-n0)" in done.stderr
    assert done.returncode == 4


@pytest.mark.parametrize(
    ("happens", "code", "said"),
    [
        ("signal.raise_signal(signal.SIGTERM)", 143, "Exit: the gate was ended by SIGTERM"),
        ("open('absent/file', 'w')", 4, "ERROR: absent/file: No such file or directory"),
    ],
)
def test_a_gate_that_is_ended_is_no_internal_error(
    run_pytest: Pytest, tmp_path: Path, happens: str, code: int, said: str
) -> None:
    (tmp_path / "conftest.py").write_text(
        "import signal\n"
        "from gpuprof.profiler.gate import pytest_session\n"
        f"pytest_session.run_gate = lambda plan: {happens}\n"
    )
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")

    done = run_pytest("--gpuprof-gate", "HEAD", "--tb=line")

    assert done.returncode == code, done.stdout
    assert said in done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout
    assert "Traceback" not in done.stderr
