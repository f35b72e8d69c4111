"""Another distribution that owns the import or the command `gpuprof` is named, in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprof.profiler.cli import main
from gpuprof.profiler.machine import checks
from gpuprof.profiler.machine.other_owners import OtherOwner, other_owners

THEIR_COMMAND = "[console_scripts]\ngpuprof = gpuprof.cli:main\n"
OUR_COMMAND = "[console_scripts]\ngpuprof = gpuprof.profiler.cli:main\n"

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Write the metadata of a distribution, as an installer leaves it in a folder of the path."""

    def write(folder: str, **files: str) -> None:
        (tmp_path / folder).mkdir()
        for name, text in files.items():
            (tmp_path / folder / f"{name}.txt".replace("RECORD.txt", "RECORD")).write_text(text)

    return write


def owners(folder: Path, *, thorough: bool = False) -> list[OtherOwner]:
    return list(other_owners([str(folder)], thorough=thorough))


def test_the_import_and_the_command_of_another_project(install: Install, tmp_path: Path) -> None:
    install("gpuprof-0.7.1.dist-info", entry_points=THEIR_COMMAND, top_level="gpuprof\n")
    (owner,) = owners(tmp_path)
    assert owner == OtherOwner("gpuprof", "0.7.1", ("import", "command"))
    assert owner.finding == (
        "gpuprof 0.7.1, another project, also owns the import and the command gpuprof"
    )


@pytest.mark.parametrize(
    "folder",
    ["gpuprof_roofline-0.1.0.dist-info", "gpuprof.egg-info", "renamed_fork-2.0.dist-info"],
)
def test_this_project_is_known_by_its_command(
    install: Install, tmp_path: Path, folder: str
) -> None:
    install(
        folder,
        entry_points=f"{OUR_COMMAND}\n[pytest11]\ngpuprof = gpuprof.profiler.gate.pytest_plugin\n",
        top_level="gpuprof\n",
        RECORD="gpuprof/__init__.py,,\n",
    )
    assert owners(tmp_path, thorough=True) == []


def test_each_possession_alone(install: Install, tmp_path: Path) -> None:
    install("traces-1.0.dist-info", entry_points="[console_scripts]\n gpuprof=traces.main:run\n")
    install("vendor.egg-info", top_level="other\ngpuprof\n")
    assert sorted(owners(tmp_path), key=lambda owner: owner.name) == [
        OtherOwner("traces", "1.0", ("command",)),
        OtherOwner("vendor", "", ("import",)),
    ]


def test_a_list_of_files_tells_it_where_no_top_level_is_named(
    install: Install, tmp_path: Path
) -> None:
    install("flat-3.1.dist-info", RECORD="flat-3.1.dist-info/METADATA,,\ngpuprof/__init__.py,,\n")
    assert owners(tmp_path) == []
    assert owners(tmp_path, thorough=True) == [OtherOwner("flat", "3.1", ("import",))]


def test_what_only_resembles_it_is_no_owner(install: Install, tmp_path: Path) -> None:
    install(
        "gpuprof_tools-1.0.dist-info",
        entry_points="[console_scripts]\ngpuprof-ls = t:ls\n[pytest11]\ngpuprof = t.plugin\n",
        top_level="gpuprof_tools\n",
        RECORD="gpuprof_tools/__init__.py,,\ndata/gpuprof/x,,\n",
    )
    # What pip could not remove, and a folder without its files.
    install("~puprof-0.7.1.dist-info", entry_points=THEIR_COMMAND)
    install("empty-1.0.dist-info")
    assert owners(tmp_path, thorough=True) == []
    assert list(other_owners([str(tmp_path / "absent.zip")], thorough=True)) == []


def test_of_two_with_one_name_the_first_on_the_path_counts(
    install: Install, tmp_path: Path
) -> None:
    for parent in ("first", "second"):
        (tmp_path / parent).mkdir()
        install(f"{parent}/gpuprof-{len(parent)}.dist-info", top_level="gpuprof\n")
    path = [str(tmp_path / "first"), str(tmp_path / "second")]
    assert [owner.version for owner in other_owners(path, thorough=False)] == ["5"]


def test_start_up_and_doctor_say_so(
    install: Install,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install("gpuprof-0.7.1.dist-info", entry_points=THEIR_COMMAND, top_level="gpuprof\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit):
        main(["--version"])
    said = "gpuprof 0.7.1, another project, also owns the import and the command gpuprof"
    remedy = "pip uninstall gpuprof, then pip install --force-reinstall --no-deps gpuprof-roofline"
    assert capsys.readouterr().err == f"gpuprof: {said}; {remedy}\n"
    rows = [check for check in checks.package_checks() if check.name == "gpuprof"]
    assert [row.state for row in rows] == ["yes", "no"]
    assert (rows[1].finding, rows[1].remedy) == (said, remedy)
