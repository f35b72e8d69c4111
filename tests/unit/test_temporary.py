"""What a killed process leaves is removed by the next, and nothing of anybody who lives."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuprof.collectors.files import temporary
from gpuprof.collectors.files.temporary import (
    WORKTREE,
    in_use,
    left_behind,
    new_temporary_folder,
    temporary_folder,
)
from gpuprof.collectors.files.writing import refuse_unwritable, temporary_beside

MAKE = """
import sys
from pathlib import Path
from gpuprof.collectors.files.temporary import keep, new_temporary_folder
from gpuprof.collectors.files.writing import temporary_beside
left = new_temporary_folder("run")
(left / "trace.json").write_text("x")
keep(new_temporary_folder("gate"))
new_temporary_folder("worktree")
temporary_beside(left.parent / "x.gpuprof").mkdir()
temporary_beside(left.parent / "x.html").write_text("x")
print("made", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this process and of those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(temporary.tempfile, "tempdir", None)
    # As a process that starts now.
    temporary._remove_left_behind.cache_clear()
    return tmp_path


@pytest.fixture
def maker(place: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """A process that has made one of each, and lives."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"made\n"
        yield process
        process.kill()


def purposes(place: Path) -> list[str]:
    return sorted(path.name.split("-")[1] for path in place.iterdir() if path.name[0] != ".")


def test_a_temporary_folder_is_private_and_goes(place: Path) -> None:
    with temporary_folder("ncu") as folder:
        assert folder.parent == place
        assert folder.stat().st_mode & 0o777 == 0o700
        assert list(left_behind(place)) == []
    assert not folder.exists()


def test_nothing_of_a_process_that_lives_is_removed(
    place: Path, maker: "subprocess.Popen[bytes]"
) -> None:
    assert maker.poll() is None
    before = sorted(place.iterdir())
    new_temporary_folder("mine").rmdir()
    assert len(before) == 5
    assert sorted(place.iterdir()) == before


def test_what_the_dead_left_is_removed_and_what_they_kept_stays(
    place: Path, maker: "subprocess.Popen[bytes]"
) -> None:
    maker.kill()
    maker.wait()
    (place / "gpuprof-abcdefgh").mkdir()
    new_temporary_folder("mine").rmdir()
    # Of an older version nobody knows whose it is; a worktree is removed with git.
    assert purposes(place) == ["abcdefgh", "gate", WORKTREE]
    assert [path.name for path in place.iterdir() if path.name[0] == "."] == []


def test_the_folder_of_an_output_is_cleaned_too(
    place: Path, maker: "subprocess.Popen[bytes]"
) -> None:
    maker.kill()
    maker.wait()
    refuse_unwritable(place / "x.gpuprof")
    assert [path.name for path in place.iterdir() if path.name[0] == "."] == []


def test_what_another_process_still_reads_stays_until_it_has(
    place: Path, maker: "subprocess.Popen[bytes]"
) -> None:
    (folder,) = place.glob("gpuprof-run-*")
    with in_use(folder):
        maker.kill()
        maker.wait()
        assert ("run", folder) not in list(left_behind(place))
    assert ("run", folder) in list(left_behind(place))


@pytest.mark.parametrize("part", [2, 3, 4])
def test_what_another_machine_or_process_of_that_number_made_proves_nothing(
    place: Path, part: int
) -> None:
    """Of another boot or container it stays; of an earlier process of our number it goes."""
    parts = temporary_beside(place / "x").name.split("-")
    other = {2: parts[2], 3: str(int(parts[3]) + 1), 4: parts[4]}
    if part == 2:
        parts[1] = "00000000"
    elif part == 3:
        parts[3] = other[3]
    (place / "-".join(parts)).touch()
    assert len(list(left_behind(place))) == (part == 3)


def test_a_link_is_not_followed(place: Path, maker: "subprocess.Popen[bytes]") -> None:
    target = place / "mine"
    target.mkdir()
    (folder,) = place.glob("gpuprof-run-*")
    link = folder.with_name(folder.name[:-1] + "_")
    link.symlink_to(target)
    maker.kill()
    maker.wait()
    os.close(os.open(target / "file", os.O_CREAT))
    new_temporary_folder("mine").rmdir()
    assert link.is_symlink()
    assert (target / "file").exists()
