"""Lines and modules from the Python stacks of imported traces."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpuprof.collectors import kineto
from gpuprof.collectors.kineto.python_frames import is_wanted


def event(name: str, start: int, end: int, category: str, **args: Any) -> dict[str, Any]:
    return {
        **{"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1},
        **{"ts": start, "dur": end - start, "args": args},
    }


def frame(name: str, start: int, end: int) -> dict[str, Any]:
    return event(name, start, end, "python_function")


def two_blocks() -> list[dict[str, Any]]:
    """Two blocks with two layers of one class each, their backward, and an operator outside."""
    events = [
        frame("<string>(1): <module>", 0, 1000),
        frame("train.py(20): step", 1, 900),
        frame("nn.Module: Model_0", 10, 300),
        frame("model.py(5): forward", 11, 299),
    ]
    for block in range(2):
        start = 20 + 100 * block
        events.append(frame(f"nn.Module: Block_{block}", start, start + 90))
        for layer in range(2):
            begin = start + 10 + 40 * layer
            number = 2 * block + layer
            events += [
                frame(f"nn.Module: Linear_{number}", begin, begin + 30),
                frame("torch/nn/modules/linear.py(100): forward", begin + 1, begin + 29),
                frame("<built-in function linear>", begin + 2, begin + 28),
                event("aten::mm", begin + 5, begin + 25, "cpu_op", **{"Sequence number": number}),
            ]
    events += [
        event("MmBackward0", 500, 550, "cpu_op", **{"Sequence number": 2, "Fwd thread id": 3}),
        event("aten::mm", 510, 540, "cpu_op"),
        event("aten::add", 600, 610, "cpu_op"),
        event("aten::mul", 950, 960, "cpu_op"),
    ]
    return events


def read(folder: Path, events: list[dict[str, Any]]) -> pl.DataFrame:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return kineto.read(path).ops


def test_paths_are_made_of_the_modules_around_and_lines_are_those_of_functions(
    tmp_path: Path,
) -> None:
    ops = read(tmp_path, two_blocks())
    products = ops.filter(pl.col("name") == "aten::mm")
    assert products["module"].to_list() == [
        "Model.Block_0.Linear_0",
        "Model.Block_0.Linear_1",
        "Model.Block_1.Linear_0",
        "Model.Block_1.Linear_1",
        # The backward pass of the third.
        "Model.Block_1.Linear_0",
    ]
    places = products.select("file", "line", "function", "function_line").unique().rows()
    assert places == [("model.py", None, "forward", 5)]
    added = ops.filter(pl.col("name") == "aten::add")
    assert added.select("module", "file", "function").row(0) == (None, "train.py", "step")
    # Also of the backward pass, which the program's step waits for.
    assert products["stack"].unique().to_list() == [
        "model.py:? forward, from line 5\ntrain.py:? step, from line 20"
    ]
    assert added["stack"].to_list() == ["train.py:? step, from line 20"]
    outside = ops.filter(pl.col("name") == "aten::mul")
    assert outside.select("module", "file", "function", "stack").row(0) == (None, None, None, None)


def test_without_stacks_both_are_unknown(tmp_path: Path) -> None:
    events = [each for each in two_blocks() if each["cat"] != "python_function"]
    assert read(tmp_path, events)["file"].null_count() == len(read(tmp_path, events))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("nn.Module: Linear_0", True),
        ("train.py(20): step", True),
        ("/home/me/lib/train.py(20): <lambda>", True),
        ("/opt/lib/python3.11/site-packages/transformers/models/x.py(1): forward", True),
        ("torch/utils/checkpoint.py(1080): recompute_fn", True),
        ("/opt/lib/python3.11/site-packages/torch/nn/functional.py(1): relu", False),
        ("torch/nn/modules/module.py(1501): _call_impl", False),
        ("threading.py(975): _bootstrap", False),
        ("/usr/lib/python3.10/contextlib.py(76): inner", False),
        ("<built-in method mm of type object at 0x7f>", False),
        ("<string>(1): <module>", False),
    ],
)
def test_which_frames_tell_something(name: str, wanted: bool) -> None:
    assert is_wanted(name) is wanted
