"""`gpuprof export` as a process of its own."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from gpuprof.profiler.captures import load_analysis
from gpuprof.reports.formatting import short_name
from gpuprof.reports.markdown import INVISIBLE_SPACE, escaped
from gpuprof.reports.markdown_summary import render_markdown_summary
from gpuprof.roofline.analysis import ANALYSIS_FILE, Analysis

CAPTURES = Path(__file__).parents[1] / "data" / "captures"


@pytest.fixture
def capture(tmp_path: Path, training_analysis: Analysis) -> Path:
    """A capture whose analysis is stored, with a name that a spreadsheet would compute."""
    folder = tmp_path / "run.gpuprof"
    folder.mkdir()
    first, *others = training_analysis.kernels
    kernels = (msgspec.structs.replace(first, name='=HYPERLINK("x")'), *others)
    analysis = msgspec.structs.replace(training_analysis, kernels=kernels)
    (folder / ANALYSIS_FILE).write_bytes(msgspec.json.encode(analysis))
    return folder


def _gpuprof(*arguments: str | Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "gpuprof", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def _named(row: dict[str, Any], place: str = "") -> dict[str, Any]:
    """What the JSON has in one row, by the names of columns; written for this test."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= _named(value, f"{place}{name}.")
        else:
            is_list = isinstance(value, list)
            found[place + name] = json.dumps(value, separators=(",", ":")) if is_list else value
    return found


def test_each_list_of_the_json_is_a_table_with_its_figures(capture: Path, tmp_path: Path) -> None:
    result = _gpuprof("export", capture, "--format", "parquet", "-o", "tables", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "")
    tables = {path.stem: pl.read_parquet(path) for path in (tmp_path / "tables").iterdir()}
    assert result.stderr == f"gpuprof: wrote {len(tables)} tables into tables\n"
    analysis = json.loads((capture / ANALYSIS_FILE).read_bytes())
    for name in ("kernels", "ops", "step.flops", "ceilings"):
        expected: Any = analysis
        for part in name.split("."):
            expected = expected[part]
        rows = tables[name].to_dicts()
        assert len(rows) == len(expected) > 0
        for row, wanted in zip(rows, map(_named, expected), strict=True):
            # What no row of a table has is no column.
            assert {key: row.get(key) for key in wanted} == wanted
            assert all(value is None for key, value in row.items() if key not in wanted)
    figures = dict(tables["figures"].iter_rows())
    assert figures["steps.median_ns"] == str(analysis["steps"]["median_ns"])
    assert figures["device.name"] == analysis["device"]["name"]


def test_csv_is_for_spreadsheets_and_computes_nothing_there(capture: Path, tmp_path: Path) -> None:
    assert _gpuprof("export", capture, cwd=tmp_path).returncode == 0
    with (tmp_path / "run-tables" / "kernels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["name"] == '\'=HYPERLINK("x")'
    analysis = json.loads((capture / ANALYSIS_FILE).read_bytes())
    assert [int(row["device_ns"]) for row in rows] == [
        kernel["device_ns"] for kernel in analysis["kernels"]
    ]

    again = _gpuprof("export", capture, cwd=tmp_path)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == "gpuprof: run-tables exists; choose another -o\n"


def test_plots_are_files_of_their_own(capture: Path, tmp_path: Path) -> None:
    result = _gpuprof("export", capture, "--format", "svg", cwd=tmp_path)

    assert (result.returncode, result.stdout) == (0, "")
    files = {path.name for path in (tmp_path / "run-plots").iterdir()}
    assert {"roofline.svg", "steps.svg"} <= files
    assert result.stderr == f"gpuprof: wrote {len(files)} plots into run-plots\n"
    again = _gpuprof("export", capture, "--format", "svg", cwd=tmp_path)
    assert again.returncode == 1
    assert "run-plots exists" in again.stderr


def test_a_summary_is_markdown_of_one_screen() -> None:
    block = load_analysis(CAPTURES / "h200_llama_block")
    bad = msgspec.structs.replace(block, title="<b>@all</b> | # x", warnings=tuple("abcde"))
    text = render_markdown_summary(bad)

    shown, *folded = text.split("<details>")
    # With an invisible space in the name: GitHub tells nobody.
    assert shown.startswith(f"## \\<b\\>\\@{INVISIBLE_SPACE}all\\</b\\> \\| # x")
    assert len(shown.splitlines()) < 60
    assert "Step time" in shown
    assert "at the roof" in shown
    assert "To change" in shown
    assert text.count("<details>") == text.count("</details>") == len(folded) > 0
    assert escaped(short_name(block.kernels[0].name)) in folded[0]
