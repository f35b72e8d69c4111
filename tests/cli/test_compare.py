"""`gpuprof compare` as a process of its own."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]

RECORDINGS = Path(__file__).resolve().parents[1] / "data" / "kineto"
EAGER = str(RECORDINGS / "h100_block_infer_fp16.json.gz")
COMPILED = str(RECORDINGS / "h100_block_compile.json.gz")
PUBLIC = Path(__file__).resolve().parents[3] / "shared" / "data" / "public" / "kineto"

SCRIPT = """
import torch
import gpuprof

x, y = torch.randn(384, 384), torch.randn(384, 384)
for _ in range(20):
    z = (x @ y).relu()
    {extra}
    gpuprof.step()
"""


def test_two_traces_are_enough(gpuprof: Gpuprof) -> None:
    result = gpuprof("compare", EAGER, COMPILED)

    assert result.returncode == 0
    first = " ".join(result.stdout.split("\nbase ")[0].split())
    assert first.startswith("Faster: profiled step time 1.870 ms → 1.531 ms (-339 µs, -18.1%), ")
    *lines, last = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    # To be copied whole.
    assert last == f"gpuprof compare {EAGER} {COMPILED} -o change.html"


def test_an_added_operator_is_found_between_two_runs(gpuprof: Gpuprof, tmp_path: Path) -> None:
    for name, extra in (("before", ""), ("after", "w = torch.erfinv(torch.tanh(z))")):
        (tmp_path / f"{name}.py").write_text(SCRIPT.format(extra=extra))
        run = gpuprof("run", "-o", f"{name}.gpuprof", f"{name}.py")
        assert run.returncode == 0, run.stderr

    result = gpuprof("compare", "before.gpuprof", "after.gpuprof", "-o", "change.json")

    assert result.returncode == 0, result.stderr
    comparison = json.loads((tmp_path / "change.json").read_text())
    assert comparison["base"]["timed"] == comparison["head"]["timed"] == 10
    assert comparison["strict_differences"] == []
    new = [k["head"]["op"] for k in comparison["kernels"] if k["match"] == "new"]
    assert sorted(new) == ["aten::erfinv", "aten::tanh"]
    assert comparison["step"]["new_ns"] > 0
    kept = [k["head"]["op"] for k in comparison["kernels"] if k["match"] == "name"]
    assert sorted(kept) == ["aten::mm", "aten::relu"]


@pytest.mark.parametrize(
    ("base", "head", "allowed", "code"),
    [(COMPILED, EAGER, "5%", 1), (COMPILED, EAGER, "50", 0), (EAGER, COMPILED, "0", 0)],
    ids=["slower by more", "slower by less", "faster"],
)
def test_it_fails_only_where_asked_to(
    gpuprof: Gpuprof, base: str, head: str, allowed: str, code: int
) -> None:
    assert gpuprof("compare", base, head, "--fail-on", allowed).returncode == code
    assert gpuprof("compare", base, head).returncode == 0


@pytest.mark.parametrize("name", ["change.html", "change.md", "change.json"])
def test_each_form_is_written_and_not_replaced_unasked(
    gpuprof: Gpuprof, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("mine")

    refused = gpuprof("compare", EAGER, COMPILED, "-o", name)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert (tmp_path / name).read_text() == "mine"

    assert gpuprof("compare", EAGER, COMPILED, "-f", "-o", name).returncode == 0
    assert "triton_poi_fused" in (tmp_path / name).read_text().replace("\\", "")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("nowhere.json", EAGER), 1),
        ((EAGER, COMPILED, "-o", "change.txt"), 2),
        ((EAGER, COMPILED, "--fail-on", "much"), 2),
        ((EAGER, COMPILED, "--fail-on", "-3"), 2),
        ((EAGER, COMPILED, "--fail-on", "nan"), 2),
        ((EAGER, COMPILED, "--top", "0"), 2),
        ((EAGER, COMPILED, "--rank", "7"), 2),
    ],
    ids=lambda value: "" if isinstance(value, int) else " ".join(value[2:]) or "absent",
)
def test_wrong_use_is_one_line(gpuprof: Gpuprof, arguments: tuple[str, ...], code: int) -> None:
    result = gpuprof("compare", *arguments)

    assert result.returncode == code
    assert "Traceback" not in result.stderr
    assert "compare" in result.stderr or "gpuprof: " in result.stderr


def test_traces_of_two_gpus_cannot_fail_for_being_slower(gpuprof: Gpuprof) -> None:
    pair = [PUBLIC / f"hta_trace_diff_{name}.json.gz" for name in ("control", "test")]
    if not all(path.exists() for path in pair):
        pytest.skip(f"{pair[0]} is not here")

    result = gpuprof("compare", *map(str, pair), "--fail-on", "1%")

    assert result.returncode == 3
    said = " ".join(result.stdout.split())
    assert said.startswith("Slower, in another environment: ")
    assert "NVIDIA A100-PG509-200 against Tesla V100-SXM2-16GB" in said


def test_two_ranks_of_one_capture_are_compared(gpuprof: Gpuprof) -> None:
    capture = str(RECORDINGS.parent / "ranks" / "gloo4_ddp")

    result = gpuprof("compare", capture, capture, "--rank", "0", "--head-rank", "2")

    assert result.returncode == 0
    said = " ".join(result.stdout.split())
    assert "base train.py · rank 0 of 4" in said
    assert "head train.py · rank 2 of 4" in said
    assert said.endswith(
        f"gpuprof compare {capture} {capture} --rank 0 --head-rank 2 -o change.html"
    )
