"""Stacks of Python frames as text, and the tree of lines that lead to some work."""

from collections import Counter

import polars as pl
import pytest

from gpuprof.collectors.stacks import frame_text, installed_name, put_below
from gpuprof.reports.callers import caller_facts
from gpuprof.roofline.explain.callers import callers_of
from gpuprof.roofline.explanation_figures import Caller


def test_a_frame_has_its_line_or_a_question_mark() -> None:
    assert frame_text("my train.py", 42, "step") == "my train.py:42 step"
    assert frame_text("train.py", None, "step") == "train.py:? step"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py", "torch/nn/functional.py"),
        ("/usr/lib/python3/dist-packages/torch/_tensor.py", "torch/_tensor.py"),
        ("/usr/lib/python3.12/threading.py", "threading.py"),
        ("/home/me/train.py", "/home/me/train.py"),
        ("train.py", "train.py"),
    ],
)
def test_a_library_is_known_without_where_it_is_installed(path: str, name: str) -> None:
    assert installed_name(path) == name


def test_what_a_compiled_function_calls_takes_the_place_of_what_runs_it() -> None:
    outer = "torch/x.py:7 run\ntrain.py:? Model.forward\ntorch/y.py:9 call\ntrain.py:30 <module>"
    inner = "train.py:12 Block.forward\ntrain.py:23 Model.forward"
    assert put_below(outer, inner).splitlines() == [
        *inner.splitlines(),
        *outer.splitlines()[2:],
    ]
    # As Python 3.10 names it.
    assert put_below(outer.replace("Model.", ""), inner).splitlines()[2:] == outer.splitlines()[2:]
    # A function that is not there is called by the innermost.
    assert put_below(outer, "other.py:1 f").splitlines() == ["other.py:1 f", *outer.splitlines()]


STACKS = {
    1: "a.py:3 leaf\ntorch/nn/modules/module.py:9 Module._call_impl\na.py:2 f\na.py:1 <module>",
    2: "a.py:4 leaf\na.py:2 f\na.py:1 <module>",
    3: "a.py:7 g\na.py:1 <module>",
    4: None,
}


def test_shares_of_callers_are_those_of_the_time() -> None:
    times = [(1, 30), (2, 10), (2, 10), (3, 25), (4, 24), (3, 1)]
    kernels = pl.DataFrame(times, schema=["op_id", "duration_ns"], orient="row")
    ops = pl.DataFrame({"op_id": list(STACKS), "stack": list(STACKS.values())})
    # Each frame with those around it, and the time of what is in it.
    expected = Counter[tuple[str, ...]]()
    for op_id, ns in times:
        frames = [each for each in (STACKS[op_id] or "").split("\n")[::-1] if each]
        frames = [each for each in frames if "_call_impl" not in each]
        for depth in range(1, len(frames) + 1):
            expected[tuple(frames[:depth])] += ns
    found: dict[tuple[str, ...], float] = {}

    def walk(callers: tuple[Caller, ...], above: tuple[str, ...]) -> None:
        assert list(callers) == sorted(callers, key=lambda each: -each.fraction)
        for caller in callers:
            found[(*above, caller.frame)] = caller.fraction
            walk(caller.called, (*above, caller.frame))

    tree = callers_of(kernels, ops)
    walk(tree, ())
    assert found == {frames: pytest.approx(ns / 100) for frames, ns in expected.items()}

    (facts,) = caller_facts(tree)
    assert [(fact.label, fact.value) for fact in facts.facts] == [
        ("76.0%", "a.py:1 <module>"),
        ("50.0%", "… > a.py:2 f"),
        ("30.0%", "… > … > a.py:3 leaf"),
        ("20.0%", "… > … > a.py:4 leaf"),
        ("26.0%", "… > a.py:7 g"),
    ]


def test_without_stacks_there_are_no_callers() -> None:
    kernels = pl.DataFrame({"op_id": [1, None], "duration_ns": [5, 5]})
    ops = pl.DataFrame(
        {"op_id": [1], "stack": [None]}, schema={"op_id": pl.Int64, "stack": pl.String}
    )
    assert callers_of(kernels, ops) == ()
    assert list(caller_facts(())) == []
    assert callers_of(kernels.clear(), ops) == ()
