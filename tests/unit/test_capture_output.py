"""Where the capture of one run goes when its place is taken from it."""

import shutil
import tempfile
from pathlib import Path

import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.storage import is_capture
from gpuprof.profiler import page_output
from gpuprof.profiler.page_output import PageOutput, show
from gpuprof.profiler.run.output import CaptureOutput, choose_output
from gpuprof.roofline.analyze import analyze


@pytest.fixture
def capture(build: CaptureBuilder) -> Capture:
    return build.build()


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CaptureOutput:
    """results/train of a run that was started in another folder."""
    for name in ("started", "results", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "started")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return CaptureOutput(tmp_path / "results" / "train")


def taken_away(folder: Path) -> None:
    """Let a file stand where the folder was."""
    shutil.rmtree(folder)
    folder.touch()


def test_a_capture_without_its_folder_goes_where_the_run_was_started(
    tmp_path: Path, output: CaptureOutput, capture: Capture
) -> None:
    taken_away(tmp_path / "results")
    output.store(capture, analyze(capture))
    assert output.path == output.shown == tmp_path / "started" / "train.gpuprof"
    assert is_capture(output.path)
    assert output.moved_because == f"{tmp_path}/results/train: Not a directory"
    assert list((tmp_path / "temporary").iterdir()) == []


def test_then_to_the_folder_of_temporary_files_and_last_nowhere(
    tmp_path: Path, output: CaptureOutput, capture: Capture
) -> None:
    for name in ("results", "started"):
        taken_away(tmp_path / name)
    output.store(capture, analyze(capture))
    assert output.path == tmp_path / "temporary" / "train.gpuprof"
    taken_away(tmp_path / "temporary")
    with pytest.raises(NotADirectoryError, match="results/train"):
        output.store(capture, analyze(capture))


def test_once_its_folder_is_back_the_capture_lies_there_alone(
    tmp_path: Path, output: CaptureOutput, capture: Capture
) -> None:
    taken_away(tmp_path / "results")
    output.store_early(capture, analyze(capture))
    (tmp_path / "results").unlink()
    (tmp_path / "results").mkdir()
    output.store(capture, analyze(capture))
    assert output.path == tmp_path / "results" / "train"
    assert output.moved_because == ""
    assert list((tmp_path / "started").iterdir()) == []


def test_a_place_taken_by_something_else_moves_the_capture_beside_it(
    tmp_path: Path, output: CaptureOutput, capture: Capture
) -> None:
    (tmp_path / "results" / "train").touch()
    output.store(capture, analyze(capture))
    assert output.path == tmp_path / "results" / "train.gpuprof"
    assert output.moved_because == f"{tmp_path}/results/train was not free"


@pytest.mark.parametrize(
    ("requested", "opens", "capture", "page"),
    [
        ("runs/a.gpuprof", False, "runs/a.gpuprof", None),
        ("runs/a.gpuprof", True, "runs/a.gpuprof", "runs/a.html"),
        ("runs/a", True, "runs/a", "runs/a.html"),
        ("runs/v1.2", True, "runs/v1.2", "runs/v1.2.html"),
        ("runs/a.html", False, "runs/a.gpuprof", "runs/a.html"),
        ("a.HTML", True, "a.gpuprof", "a.HTML"),
    ],
)
def test_a_page_lies_beside_its_capture(
    requested: str, opens: bool, capture: str, page: str | None
) -> None:
    output = choose_output(Path(requested), "train", force=False, opens=opens)
    assert output.shown == Path(capture)
    assert output.page == (None if page is None else PageOutput(Path(page).absolute(), opens))


def test_without_a_display_no_browser_takes_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(page_output.webbrowser, "open", lambda page: asked.append(page) or True)
    monkeypatch.setattr(page_output.sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    assert not show("file:///tmp/a%20b.html")
    monkeypatch.setenv("DISPLAY", ":0")
    assert show("file:///tmp/a%20b.html")
    assert asked == ["file:///tmp/a%20b.html"]
