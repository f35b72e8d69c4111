"""One process of a gate, its two sides, and where they stand: with git, and programs of a line."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.configuration.gate_settings import GateSettings
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate import process
from gpuprof.profiler.gate.process import measure_process, process_folder
from gpuprof.profiler.gate.programs import Preparation
from gpuprof.profiler.gate.sides import SideProgram, commit_of
from gpuprof.profiler.gate.target_locations import places_of
from gpuprof.profiler.gate.worktrees import checked_out
from gpuprof.roofline.gate.result import Place
from gpuprof.roofline.gate.suite import MeasuredProcess


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, which has a/train.py, and a changed working tree."""
    folder = tmp_path / "repository"
    (folder / "a").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "a" / "train.py").write_text("old\n")
    git(folder, "add", ".")
    git(folder, "-c", "user.email=a@b.c", "-c", "user.name=a", "commit", "-q", "-m", "one")
    (folder / "a" / "train.py").write_text("new\n")
    return folder


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def test_the_worktree_of_a_killed_gate_is_removed_by_the_next(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    source = (
        "import sys\n"
        "from pathlib import Path\n"
        "from gpuprof.profiler.gate.worktrees import checked_out\n"
        "with checked_out('HEAD', Path.cwd()):\n"
        "    print('made', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", source],
        cwd=repository,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"made\n"
        # While it lives its worktree is its own.
        with checked_out("HEAD", repository):
            assert worktrees(repository) == 3
        killed.kill()
    assert worktrees(repository) == 2

    with checked_out("HEAD", repository):
        assert worktrees(repository) == 2
    assert worktrees(repository) == 1
    assert list(place.iterdir()) == []


def worktrees(folder: Path) -> int:
    return len(git(folder, "worktree", "list").splitlines())


def test_the_base_is_a_worktree_of_the_same_folder_and_goes_at_the_end(repository: Path) -> None:
    commit = commit_of("main", repository)

    with checked_out(commit, repository / "a") as folder:
        assert (folder / "train.py").read_text() == "old\n"
        assert (repository / "a" / "train.py").read_text() == "new\n"
        assert worktrees(repository) == 2

    assert not folder.exists()
    assert worktrees(repository) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, CommandError])
def test_the_worktree_goes_whatever_happens_in_it(
    repository: Path, error: type[BaseException]
) -> None:
    found = []

    def fail(folder: Path) -> None:
        (folder / "made.txt").write_text("by a set-up")
        found.append(folder)
        raise error("x")

    with pytest.raises(error), checked_out(commit_of("HEAD", repository), repository) as folder:
        fail(folder)

    assert not found[0].exists()
    assert worktrees(repository) == 1


def test_the_end_of_a_ci_job_leaves_no_worktree(repository: Path) -> None:
    found = []

    def end(folder: Path) -> None:
        found.append(folder)
        os.kill(os.getpid(), signal.SIGTERM)

    former = signal.getsignal(signal.SIGTERM)
    with (
        pytest.raises(SystemExit) as caught,
        checked_out(commit_of("HEAD", repository), repository) as folder,
    ):
        end(folder)

    assert caught.value.code == 143
    assert not found[0].exists()
    assert worktrees(repository) == 1
    assert signal.getsignal(signal.SIGTERM) == former


def test_a_failing_set_up_is_told_and_leaves_no_worktree(repository: Path) -> None:
    settings = GateSettings(setup="echo no compiler >&2; exit 3")

    with (
        pytest.raises(CommandError, match=r"the set-up of main \(\w{7}\) ended with 3: no compile"),
        Preparation(repository, settings).base("main", ()),
    ):
        pytest.fail("the set-up failed")

    assert worktrees(repository) == 1


def test_each_side_is_set_up_in_its_folder_and_imports_from_it(repository: Path) -> None:
    settings = GateSettings(setup="cp a/train.py built.txt", python_path=("a", "."))
    preparation = Preparation(repository, settings)

    with preparation.base("HEAD", ()) as base:
        head = preparation.head(())
        assert (base.folder / "built.txt").read_text() == "old\n"
        assert (head.folder / "built.txt").read_text() == "new\n"
        assert base.python_path == ((base.folder / "a").resolve(), base.folder.resolve())
        assert head.python_path == (repository / "a", repository)
        assert base.commit == git(repository, "rev-parse", "HEAD").strip()


def test_an_interpreter_that_is_not_there_is_named(repository: Path) -> None:
    settings = GateSettings(python=".venv/bin/python")

    with pytest.raises(CommandError, match=r"no interpreter .*/repository/\.venv/bin/python; set"):
        Preparation(repository, settings).head(())


def test_a_commit_that_is_not_there_is_named(repository: Path) -> None:
    with pytest.raises(CommandError, match=r"'nowhere' is no commit here; fetch it first"):
        commit_of("nowhere", repository)


def test_outside_a_repository_there_is_no_base(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--base needs a git repository"):
        commit_of("HEAD", tmp_path)


def test_a_folder_that_the_base_lacks_is_named(repository: Path) -> None:
    (repository / "b").mkdir()

    with (
        pytest.raises(CommandError, match="has no folder b"),
        checked_out(commit_of("HEAD", repository), repository / "b"),
    ):
        pytest.fail("there is no such folder")

    assert worktrees(repository) == 1


def measured(folder: Path, script: str, *, timeout_s: float = 60.0) -> MeasuredProcess:
    """A process of an interpreter that is a shell script."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    target = Target(script="train.py", timeout_s=timeout_s)
    program = SideProgram(
        side="B",
        label="head",
        folder=folder,
        targets=(target,),
        python=str(python),
        python_path=(folder / "lib",),
    )
    found, fingerprint = measure_process(
        program, target, pair=0, first=True, output=folder / "out" / "pair-000-B"
    )
    assert fingerprint is None
    return found


def test_a_crash_is_told_by_its_last_line(tmp_path: Path) -> None:
    found = measured(tmp_path, "echo Traceback; echo 'ValueError: boom'; exit 3")

    assert found.measurements == {}
    assert found.failure.startswith("it exited with 3: ValueError: boom (")
    assert "pair-000-B/output.txt" in found.failure


def test_a_process_killed_by_a_signal_has_failed(tmp_path: Path) -> None:
    assert measured(tmp_path, "kill -9 $$").failure.startswith("it was ended by SIGKILL (")


def test_a_process_that_hangs_is_ended(tmp_path: Path) -> None:
    assert (
        "it took more than 1 s and was ended"
        in measured(tmp_path, "exec sleep 600", timeout_s=1.0).failure
    )


def test_no_capture_is_a_failure(tmp_path: Path) -> None:
    found = measured(tmp_path, "echo nothing to do; exit 0")

    assert found.failure == f"it ended well and left no capture ({found.log})"
    assert found.last_lines == ("nothing to do",)


def test_a_process_that_failed_has_its_last_lines_and_its_log(tmp_path: Path) -> None:
    program = "seq 1 90000; echo 'Traceback:' >&2; echo; echo 'ValueError: boom' >&2; exit 3"

    found = measured(tmp_path, program)

    assert found.failure == f"it exited with 3: ValueError: boom ({found.log})"
    numbers = [str(number) for number in range(89_991, 90_001)]
    assert found.last_lines == (*numbers, "Traceback:", "ValueError: boom")
    assert Path(found.log).read_text().splitlines()[1] == "1"


def test_a_broken_capture_is_a_failure(tmp_path: Path) -> None:
    script = 'for last; do :; done; mkdir -p out/pair-000-B/target.gpuprof; echo "{" > '
    found = measured(tmp_path, f"{script} out/pair-000-B/target.gpuprof/manifest.json")

    assert "manifest.json" in found.failure
    assert found.measurements == {}


def test_the_sides_folders_come_before_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")

    assert measured(tmp_path, "echo $PYTHONPATH; exit 1").failure.startswith(
        f"it exited with 1: {tmp_path}/lib:/elsewhere ("
    )


def test_others_on_the_gpu_contaminate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(process, "compute_processes", lambda: 2)

    assert measured(tmp_path, "exit 0").contamination == "2 other processes used the GPU"


def test_a_relative_output_folder_is_the_gates_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = tmp_path / "side"
    side.mkdir()
    monkeypatch.chdir(tmp_path)
    target = Target(script="-")
    # The interpreter prints what it was told to write.
    program = SideProgram(side="A", label="A", folder=side, targets=(target,), python="echo")

    measure_process(program, target, pair=0, first=True, output=Path("out"))

    log = (tmp_path / "out" / "output.txt").read_text()
    assert f"-o {tmp_path}/out/target.gpuprof" in log


def test_places_of_scripts_modules_and_tests(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__main__.py").touch()
    (tmp_path / "test_a.py").write_text(
        "import os\n\ndef helper(): ...\n\nclass TestB:\n    def test_c(self): ...\n"
    )
    (tmp_path / "test_broken.py").write_text("def (")
    targets = (
        Target(script="train.py"),
        Target(name="outside", script=sys.executable),
        Target(module="pkg"),
        Target(bench=("gemm",)),
        Target(name="tests", pytest=("test_a.py::TestB", "test_broken.py")),
    )

    assert places_of(targets, tmp_path) == {
        "train": Place(file="train.py"),
        "pkg": Place(file="pkg/__main__.py"),
        "tests": Place(file="test_a.py"),
        "tests/test_a.test_c": Place(file="test_a.py", line=6),
    }


def test_targets_whose_names_a_folder_cannot_have_do_not_share_one(tmp_path: Path) -> None:
    names = ("a-b", "a/b", "a b", "a:b", "train.py")
    folders = [process_folder(tmp_path, "A", name, 0) for name in names]
    assert len({str(folder).lower() for folder in folders}) == len(names)
    assert all(folder.parent.parent == tmp_path for folder in folders)
    # A name that is one stays as it is.
    assert [folders[0].parent.name, folders[-1].parent.name] == ["a-b", "train.py"]
