"""`gpuprof report` and `gpuprof summary` as processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpuprof.roofline.analysis import ANALYSIS_FILE, Analysis


@pytest.fixture
def capture(tmp_path: Path, training_analysis: Analysis) -> Path:
    """A capture whose analysis is stored; its tables are not needed."""
    folder = tmp_path / "run.gpuprof"
    folder.mkdir()
    (folder / ANALYSIS_FILE).write_bytes(msgspec.json.encode(training_analysis))
    return folder


def _gpuprof(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuprof", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80", "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_html_is_written_beside_the_working_directory(capture: Path, tmp_path: Path) -> None:
    result = _gpuprof("report", capture, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == "gpuprof: wrote run.html\n"
    assert (tmp_path / "run.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.gpuprof", "run.html"]


@pytest.mark.parametrize(
    ("name", "start"), [("a.md", "# train\\_transformer.py"), ("a.json", "{"), ("a.HTML", "<!DOC")]
)
def test_the_ending_chooses_the_form(capture: Path, tmp_path: Path, name: str, start: str) -> None:
    assert _gpuprof("report", capture, "-o", name, cwd=tmp_path).returncode == 0
    assert (tmp_path / name).read_text("utf-8").startswith(start)


def test_a_dash_is_stdout(capture: Path, tmp_path: Path) -> None:
    result = _gpuprof("report", capture, "-o", "-", cwd=tmp_path)
    assert result.stdout.startswith("<!DOCTYPE html>")
    assert result.stdout.rstrip().endswith("</html>")
    assert result.stderr == ""


def test_nothing_is_overwritten_without_force(capture: Path, tmp_path: Path) -> None:
    (tmp_path / "run.html").write_text("mine")
    # Refused before the capture is even looked at.
    result = _gpuprof("report", "absent.gpuprof", "-o", "run.html", cwd=tmp_path)
    assert result.returncode == 1
    assert "run.html exists" in result.stderr
    assert (tmp_path / "run.html").read_text() == "mine"
    assert _gpuprof("report", capture, "--force", cwd=tmp_path).returncode == 0
    assert (tmp_path / "run.html").read_text("utf-8") != "mine"


def test_only_a_page_can_be_opened(capture: Path, tmp_path: Path) -> None:
    result = _gpuprof("report", capture, "--open", "-o", "a.md", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "--open shows an HTML page, and not a.md" in result.stderr
    assert not (tmp_path / "a.md").exists()


def test_another_ending_is_a_usage_error(capture: Path, tmp_path: Path) -> None:
    result = _gpuprof("report", capture, "-o", "a.pdf", cwd=tmp_path)
    assert result.returncode == 2
    assert ".html, .md, .json" in result.stderr


@pytest.mark.parametrize("command", ["report", "summary"])
def test_no_capture_is_one_line(tmp_path: Path, command: str) -> None:
    result = _gpuprof(command, "absent.gpuprof", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith("gpuprof: absent.gpuprof")
    assert len(result.stderr.splitlines()) == 1


def test_the_summary_goes_to_stdout_and_ends_with_the_next_command(
    capture: Path, tmp_path: Path
) -> None:
    result = _gpuprof("summary", "run.gpuprof", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "train_transformer.py"
    assert lines[-1] == "gpuprof report run.gpuprof"
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in result.stdout


def test_a_terminal_without_unicode_gets_a_summary_too(capture: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "gpuprof", "summary", str(capture)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"Largest loss" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], ("torch", "polars", "plotly", "scipy", "numpy", "jinja2")),
        (["report", "--help"], ("torch", "polars", "plotly", "jinja2")),
        (["summary", "CAPTURE"], ("torch", "polars", "plotly", "scipy", "numpy", "jinja2")),
        (["report", "CAPTURE", "-o", "-"], ("torch", "scipy")),
    ],
)
def test_heavy_packages_stay_unimported(
    capture: Path, arguments: list[str], absent: tuple[str, ...]
) -> None:
    arguments = [str(capture) if argument == "CAPTURE" else argument for argument in arguments]
    code = (
        "import sys\n"
        "from gpuprof.profiler.cli import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        f"sys.exit(str(sorted(set(sys.modules) & {set(absent)!r})))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False
    )
    assert result.stderr == "[]\n"
