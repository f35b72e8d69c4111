"""What an agent is told about captures, through the official client of the protocol."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mcp import Client

from gpuprof.profiler.agent.answers import CaptureAnswers
from gpuprof.profiler.agent.server import make_server
from gpuprof.profiler.captures import load_analysis
from gpuprof.reports.json_answers.rendering import published_schema
from gpuprof.reports.json_answers.schemas import MCP

DATA = Path(__file__).parents[1] / "data"
BLOCK, PRODUCTS = "h200_llama_block", "h200_counted_products"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("agent") / "captures"
    shutil.copytree(DATA / "captures" / BLOCK, made / BLOCK)
    shutil.copytree(DATA / "measured" / PRODUCTS, made / "runs" / PRODUCTS)
    (made.parent / "outside").mkdir()
    return made


@pytest.fixture(scope="module")
def answers(folder: Path) -> CaptureAnswers:
    return CaptureAnswers(folder)


def asked(folder: Path, *calls: tuple[str, dict[str, Any]]) -> tuple[list[str], list[Any]]:
    """The names of all tools, and what each call answers, by a client in this process."""

    async def ask() -> tuple[list[str], list[Any]]:
        async with Client(make_server(folder)) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            found = [await client.call_tool(name, arguments) for name, arguments in calls]
        return tools, [json.loads(each.content[0].text) for each in found]  # type: ignore[union-attr]

    return asyncio.run(ask())


def test_a_client_lists_and_asks(folder: Path) -> None:
    tools, (captures, summary, figures) = asked(
        folder,
        ("captures", {}),
        ("summary", {"capture": BLOCK}),
        ("figures", {"capture": BLOCK, "part": "kernels", "most": 3}),
    )
    assert tools == [
        *("captures", "summary", "advice", "figures", "explain", "repro", "compare"),
    ]
    assert {row["name"] for row in captures["answer"]} == {BLOCK, f"runs/{PRODUCTS}"}
    assert "Limited by" in summary["answer"]
    for each in (captures, summary, figures):
        Draft202012Validator(published_schema(MCP)).validate(each)
    kernels = load_analysis(folder / BLOCK).kernels
    rows = figures["answer"]
    assert [row["name"] for row in rows["rows"]] == [kernel.name for kernel in kernels[:3]]
    assert rows["left_out"] == len(kernels) - 3


def test_a_name_with_several_matches_is_picked(answers: CaptureAnswers) -> None:
    several = answers.explain(BLOCK, "aten::mm")["answer"]["matches"]
    assert len(several) > 1
    picked = answers.explain(BLOCK, "aten::mm", 2)["answer"]
    assert several[1]["name"] in json.dumps(picked)


def test_an_operator_is_told_as_a_script(answers: CaptureAnswers) -> None:
    script = answers.repro(BLOCK, "aten::mm", 2)["answer"]
    assert "torch.ops.aten.mm.default(" in script
    assert compile(script, "script.py", "exec")


def test_two_captures_are_compared(answers: CaptureAnswers) -> None:
    text = answers.compare(BLOCK, f"runs/{PRODUCTS}")["answer"]
    assert isinstance(text, str)
    assert "h200" in text.lower() or "step" in text.lower()


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("summary", ("nothing",), "there is no such capture"),
        ("summary", ("../outside",), "there is no such capture"),
        ("summary", ("/etc",), "there is no such capture"),
        ("explain", ("../outside", "aten::mm"), "there is no such capture"),
        ("explain", (BLOCK, "aten::nothing"), "is called"),
        ("explain", (BLOCK, "aten::mm", 999), "match"),
        ("explain", (BLOCK, "aten::mm", 0), "match"),
        ("repro", (BLOCK, "aten::mm", 999), "with different arguments"),
        ("repro", (BLOCK, "aten::nothing"), "is called so"),
        ("figures", (BLOCK, "secrets"), "has no part 'secrets'"),
        ("figures", (BLOCK, "__class__"), "has no part"),
        ("figures", (BLOCK, "recorder"), "nothing of recorder was recorded"),
        ("compare", (BLOCK, "nothing"), "there is no such capture"),
    ],
)
def test_what_is_not_known_is_said_in_one_field(
    answers: CaptureAnswers, tool: str, arguments: tuple[Any, ...], reason: str
) -> None:
    answer = getattr(answers, tool)(*arguments)
    assert answer.keys() == {"schema", "cannot_answer"}
    assert reason in answer["cannot_answer"]["reason"]
    Draft202012Validator(published_schema(MCP)).validate(answer)


def test_a_list_is_cut(answers: CaptureAnswers) -> None:
    for most, shown in ((10**6, 100), (0, 0), (-5, 0)):
        rows = answers.figures(BLOCK, "kernels", most)["answer"]["rows"]
        assert len(rows) == min(shown, len(rows))
    assert answers.figures(BLOCK, "steps")["answer"]["median_ns"] > 0


def test_nothing_is_written(folder: Path, answers: CaptureAnswers) -> None:
    def state() -> set[tuple[str, int]]:
        return {(str(path), path.stat().st_mtime_ns) for path in folder.rglob("*")}

    before = state()
    answers.captures()
    answers.advice(BLOCK)
    answers.explain(f"runs/{PRODUCTS}", "aten::add")
    assert state() == before
