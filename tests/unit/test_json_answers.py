"""What every command answers as JSON: its schema is published, and real answers follow it."""

import argparse
import copy
import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from checkout import needs_checkout
from json_documents import read_answer
from jsonschema import Draft202012Validator
from recorded_gate import recorded_gate

from gpuprof.profiler.cli import main, make_parser
from gpuprof.reports.json_answers.rendering import published_schema
from gpuprof.reports.json_answers.schemas import ANALYSIS, BENCH, COMPARE, GATE, SCHEMAS
from gpuprof.roofline.analysis import ANALYSIS_SCHEMA_VERSION
from gpuprof.roofline.bench.results import BENCH_SCHEMA_VERSION
from gpuprof.roofline.comparison.result import COMPARISON_SCHEMA_VERSION
from gpuprof.roofline.gate.result import GATE_SCHEMA_VERSION

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "docs" / "schemas"
BLOCK = ROOT / "tests" / "data" / "captures" / "h100_llama_block"
# Commands to which it means nothing; docs/json.md says why.
WITHOUT = {"run", "serve", "mcp", "completion"}
MODEL = "--layers 2 --hidden 64 --heads 4 --ffn 256 --vocabulary 100 --sequence 8 --batch 8"

Answer = dict[str, Any]


def names(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, set[str]]]:
    """Each command and action, with its options."""
    if name:
        yield name, {option for action in parser._actions for option in action.option_strings}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield from names(inner, f"{name} {word}".strip())


def test_every_command_has_the_option_or_a_reason_in_the_documentation() -> None:
    without = {name for name, options in names(make_parser()) if "--json" not in options}
    assert without == WITHOUT
    page = (ROOT / "docs" / "json.md").read_text()
    assert all(f"| `{name}` |" in page for name in WITHOUT)
    listed = {schema.name for schema in SCHEMAS if f"(schemas/{schema.name}.schema.json)" in page}
    assert listed == {schema.name for schema in SCHEMAS}


@needs_checkout
def test_the_schemas_are_published() -> None:
    published = {file.name: json.loads(file.read_text()) for file in PUBLISHED.iterdir()}
    made = {f"{each.name}.schema.json": published_schema(each) for each in SCHEMAS}
    # After a change: python scripts/write_schemas.py
    assert published == made
    for schema in made.values():
        Draft202012Validator.check_schema(schema)


def test_versions_are_those_of_the_files_that_are_stored() -> None:
    stored = {
        ANALYSIS: ANALYSIS_SCHEMA_VERSION,
        BENCH: BENCH_SCHEMA_VERSION,
        COMPARE: COMPARISON_SCHEMA_VERSION,
        GATE: GATE_SCHEMA_VERSION,
    }
    assert {schema: schema.version for schema in stored} == stored
    assert len({schema.name for schema in SCHEMAS}) == len(SCHEMAS)


@pytest.fixture
def answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Answer]:
    """Run a command with --json in a folder of its own; stdout must follow a schema alone."""
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))

    def answer(words: str, *, code: int = 0) -> Answer:
        capsys.readouterr()
        assert main([*words.split(), "--json"]) == code
        return read_answer(capsys.readouterr().out)

    return answer


@pytest.mark.parametrize(
    ("words", "schema", "field"),
    [
        (f"summary {BLOCK}", "summary", "headline"),
        (f"report {BLOCK}", "analysis", "kernels"),
        (f"analyze {BLOCK}", "summary", "split"),
        (f"export {BLOCK} -o tables", "files", "files"),
        (f"explain {BLOCK} aten::mm", "matches", "matches"),
        (f"explain {BLOCK} aten::mm --pick 1", "explain", "layers"),
        (f"repro {BLOCK} aten::mm --pick 2", "repro", "overload"),
        (f"compare {BLOCK} {BLOCK}", "compare", "kinds"),
        (f"mfu {BLOCK} --params 202M", "mfu_capture", "counted"),
        ("mfu --params 7B --device A100-SXM4-80GB --tokens-per-second 3k", "mfu", "mfu"),
        (f"plan --device A100-SXM4-80GB {MODEL}", "plan", "layouts"),
        ("bench --list", "bench_list", "families"),
        ("bench --claims public-articles", "bench_claims", "claims"),
        ("baseline list", "baseline", "baselines"),
    ],
)
def test_answers_follow_their_schemas(
    answer: Callable[..., Answer], words: str, schema: str, field: str
) -> None:
    found = answer(words)
    assert found["schema"]["name"] == schema
    assert field in found
    assert "cannot_answer" not in found


def test_those_of_a_gates_result(answer: Callable[..., Answer], tmp_path: Path) -> None:
    (tmp_path / "gate.json").write_bytes(msgspec.json.encode(recorded_gate(3e6)))
    added = answer("history add gate.json")["gates"]
    assert [each["gate"] for each in added] == ["gate.json"]
    assert added[0]["added"] > 0
    shown = answer("history show")
    assert shown["levels"][0]["series"]["metric"] == "time"
    if not shutil.which("otava"):
        assert "Apache Otava" in shown["cannot_answer"]["reason"]
        assert "pipx install" in shown["cannot_answer"]["remedy"]
    assert answer("history export h.parquet")["files"] == ["h.parquet"]
    assert answer("history plot h.html")["files"] == ["h.html"]


@pytest.mark.parametrize(
    ("words", "code", "schema", "reason", "remedy"),
    [
        ("summary none", 1, "summary", "none: no such capture", "gpuprof"),
        (f"explain {BLOCK} aten::nothing", 2, "explain", "is called so", ""),
        ("mfu", 2, "mfu", "give --params", ""),
        ("mfu none", 1, "mfu_capture", "none: no such capture", "gpuprof"),
        ("compare none none", 1, "compare", "none", ""),
        ("gate --base main", 2, "gate", "", ""),
        ("gate plan", 2, "gate_plan", "", ""),
        (f"repro {BLOCK} MmBackward0", 1, "repro", "a node of autograd", "aten::mm"),
        ("history show", 2, "history", "there is no history", "make one with"),
        ("baseline pin v1", 2, "baseline", "there is no baseline", "make one with"),
    ],
)
def test_what_cannot_be_answered_says_why_in_one_field(
    answer: Callable[..., Answer], words: str, code: int, schema: str, reason: str, remedy: str
) -> None:
    found = answer(words, code=code)
    assert found["schema"]["name"] == schema
    assert found.keys() == {"schema", "cannot_answer"}
    assert reason in found["cannot_answer"]["reason"]
    assert remedy in found["cannot_answer"]["remedy"]


def test_a_place_that_fails_is_an_answer_too(answer: Callable[..., Answer], tmp_path: Path) -> None:
    (tmp_path / "gpuprof-history.sqlite").mkdir()
    found = answer("history show", code=2)
    assert "gpuprof-history.sqlite" in found["cannot_answer"]["reason"]


def test_a_word_behind_the_option_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "--json", "gemm"]) == 2
    assert "--json gemm: the name of its file ends in .json" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@needs_checkout
def test_a_schema_that_breaks_its_readers_needs_a_new_version() -> None:
    place = ROOT / "scripts" / "write_schemas.py"
    spec = importlib.util.spec_from_file_location("write_schemas", place)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    old = published_schema(COMPARE)
    assert list(script.breaks(old, old)) == []
    new = copy.deepcopy(old)
    fields = new["anyOf"][0]["properties"]
    fields["more"] = {"type": "string"}
    assert list(script.breaks(old, new)) == []
    fields["head"] = {"type": "string"}
    del fields["base"]
    found = list(script.breaks(old, new))
    assert any(one.endswith("properties.base is gone") for one in found)
    assert any("properties.head" in one for one in found)
