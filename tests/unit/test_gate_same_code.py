"""Both sides of the same code, and what git says of the folder they come from."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.manifest import Fingerprint
from gpuprof.profiler.cli import main
from gpuprof.profiler.configuration.gate_settings import GateSettings
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate import engine
from gpuprof.profiler.gate.programs import Preparation
from gpuprof.profiler.gate.same_code import (
    kept_on_failure,
    measure_alone,
    measure_same_code,
    same_code,
)
from gpuprof.profiler.gate.sides import SideProgram, branch_of, commit_as_it_stands
from gpuprof.roofline.gate.measurement import Measurement
from gpuprof.roofline.gate.suite import MeasuredProcess

TRAIN = (Target(name="train", script="train.py"),)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("1\n")
    who = ("-c", "user.name=n", "-c", "user.email=n@localhost")
    for command in (["init", "-q", "-b", "work"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *who, *command], cwd=folder, check=True)
    return folder


def test_a_clean_folder_has_its_commit_and_a_changed_one_has_none(repository: Path) -> None:
    commit = commit_as_it_stands(repository)

    assert commit is not None
    assert len(commit) == 40
    assert branch_of(repository) == "work"
    (repository / "new.py").touch()
    assert commit_as_it_stands(repository) is None


def test_without_a_repository_or_git_nothing_is_known(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    outside = tmp_path / "outside"
    outside.mkdir()
    assert (commit_as_it_stands(outside), branch_of(outside)) == (None, None)

    monkeypatch.setenv("PATH", str(outside))
    assert (commit_as_it_stands(repository), branch_of(repository)) == (None, None)


def test_the_same_code_is_the_working_tree_twice(repository: Path) -> None:
    with same_code(Preparation(repository, GateSettings()), TRAIN, rebuild=False) as (base, head):
        assert (base.side, head.side) == ("A", "B")
        assert base.folder == head.folder == repository


def test_to_rebuild_is_two_worktrees_each_set_up_for_itself(repository: Path) -> None:
    settings = GateSettings(setup="pwd > built")
    with same_code(Preparation(repository, settings), TRAIN, rebuild=True) as (base, head):
        folders = [base.folder, head.folder]
        assert (base.side, head.side) == ("A", "B")
        assert base.commit == head.commit
        built = [(folder / "built").read_text().strip() for folder in folders]
        assert [Path(path).resolve() for path in built] == [f.resolve() for f in folders]
        assert len({*folders, repository}) == 3
    assert not any(folder.exists() for folder in folders)
    assert not (repository / "built").exists()


Measure = Callable[..., tuple[MeasuredProcess, Fingerprint]]


def machine(failure: str = "", samples: int = 20, disturbed: int = 0) -> Measure:
    """Stands in for `measure_process`: the same times always, the first ones disturbed."""

    def measured(
        program: SideProgram, target: Target, *, pair: int, first: bool, **_: object
    ) -> tuple[MeasuredProcess, Fingerprint]:
        found = Measurement(
            samples_ns=(1_000_000 + pair,) * samples,
            discarded=tuple(range(disturbed)),
            discard_reasons=("other programs had the core",) if disturbed else (),
        )
        process = MeasuredProcess(
            target=target.name,
            side=program.side,
            pair=pair,
            first=first,
            measurements={} if failure else {target.name: found},
            failure=failure,
        )
        return process, Fingerprint()

    return measured


def test_alone_only_one_side_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "measure_process", machine())
    head = SideProgram(side="B", label="head", folder=tmp_path, targets=TRAIN, python="python")

    result = measure_alone(head, 4, tmp_path, lambda what, done, planned: None)

    assert [(p.side, p.pair) for p in result.processes] == [("B", pair) for pair in range(4)]


@pytest.mark.parametrize(
    ("stand_in", "said", "code"),
    [
        (machine(failure="it exited with 1: boom"), "train: it exited with 1: boom", 5),
        (machine(samples=0), "train: no data of the base: it gave no samples", 1),
    ],
)
def test_what_cannot_be_measured_is_told_and_calibrates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: Measure, said: str, code: int
) -> None:
    monkeypatch.setattr(engine, "measure_process", stand_in)
    base, head = (
        SideProgram(side=side, label=side, folder=tmp_path, targets=TRAIN, python="python")
        for side in ("A", "B")
    )

    with pytest.raises(CommandError, match=said) as caught:
        measure_same_code((base, head), 2, tmp_path, lambda what, done, planned: None)
    assert caught.value.exit_code == code


def test_where_every_pair_is_lost_one_line_says_what_disturbed_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "gpuprof.toml").write_text("[[target]]\nscript = 'train.py'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(engine, "measure_process", machine(samples=3, disturbed=2))

    assert main(["gate", "calibrate", "--pairs", "2"]) == 4

    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("gpuprof: no target has two usable pairs: train: 0 of 2 pairs are")
    assert "train: 8 of 8 processes do not count" in said
    assert said.endswith("other programs had the core")


def test_captures_stay_where_measuring_failed_and_an_empty_folder_does_not() -> None:
    folders = []

    def measure(*written: str, fail: bool) -> None:
        with kept_on_failure() as folder:
            folders.append(folder)
            for name in written:
                (folder / name).touch()
            if fail:
                raise CommandError("a process failed")

    measure("output.txt", fail=False)
    with pytest.raises(CommandError):
        measure("output.txt", fail=True)
    with pytest.raises(CommandError):
        measure(fail=True)

    assert [folder.exists() for folder in folders] == [False, True, False]
    shutil.rmtree(folders[1])
