"""Markdown and JSON."""

import json

import msgspec
import pytest

from gpuprof.reports.json_answers.rendering import render_json
from gpuprof.reports.json_answers.schemas import ANALYSIS
from gpuprof.reports.markdown import TOP_ROWS, escaped, render_markdown, table
from gpuprof.roofline.analysis import Analysis


def test_every_table_row_has_as_many_cells_as_its_head(training_analysis: Analysis) -> None:
    text = render_markdown(training_analysis)
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if lines[0].startswith("|"):
            cells = {line.replace("\\|", "").count("|") for line in lines}
            assert len(cells) == 1, lines[0]


def test_hostile_names_stay_text(training_analysis: Analysis) -> None:
    name = "a|b\n<script>alert(1)</script> [x](http://y) `c` @someone"
    hostile = msgspec.structs.replace(training_analysis.ops[0], name=name)
    text = render_markdown(msgspec.structs.replace(training_analysis, ops=(hostile,), title=name))
    assert "<script" not in text.replace("\\<", "")
    assert escaped(name) in text
    assert "a\\|b\\\\n\\<script\\>" in text


def test_the_rest_is_one_row_with_its_share(training_analysis: Analysis) -> None:
    rest = len(training_analysis.kernels) - TOP_ROWS
    assert rest > 0
    assert f"other: {rest} smaller ones" in render_markdown(training_analysis)


def test_columns_of_numbers_are_set_to_the_right() -> None:
    assert table(("Name", ">ms"), [("a", "1")]).splitlines() == [
        "| Name | ms |",
        "| --- | ---: |",
        "| a | 1 |",
    ]


@pytest.mark.parametrize("fixture", ["training_analysis", "cpu_analysis", "bare_analysis"])
def test_each_kind_of_analysis_renders_without_none_or_nan(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    text = render_markdown(request.getfixturevalue(fixture))
    assert "None" not in text
    assert "nan" not in text.lower().split()


def test_json_is_the_analysis_and_reads_back(training_analysis: Analysis) -> None:
    text = render_json(ANALYSIS, training_analysis)
    assert msgspec.json.decode(text, type=Analysis) == training_analysis
    assert json.loads(text)["schema_version"] == training_analysis.schema_version
