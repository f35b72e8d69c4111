"""Which call in a compiled graph's code a kernel of the profile is, and what that makes it."""

from collections.abc import Mapping, Sequence

import polars as pl
import pytest

from gpuprof.collectors import schema
from gpuprof.collectors.call_tree.compiled_origins import with_origins
from gpuprof.collectors.kernel_origins import KernelOrigin, decode_origins

# Name, start, end, and the row around it.
Operator = tuple[str, int, int, int | None]
# The kernel, and of each operator that it is made of: name, module, line, whether of a backward.
Made = tuple[str, Sequence[tuple[str, str, int | None, bool]]]


def operators(rows: Sequence[Operator], module: str | None = "Model") -> pl.DataFrame:
    frame = pl.DataFrame(
        [
            {
                "op_id": row,
                "parent_id": parent,
                "name": name,
                "process": 1,
                "thread": 7,
                "start_ns": start,
                "end_ns": end,
                "module": module,
            }
            for row, (name, start, end, parent) in enumerate(rows)
        ]
    )
    return schema.conform("ops", frame.with_columns(rank=pl.lit(0)))


def runs(*times: tuple[int, int], thread: int = 7) -> pl.DataFrame:
    rows = [
        {"rank": 0, "process": 1, "thread": thread, "start_ns": start, "end_ns": end, "graph": 40}
        for start, end in times
    ]
    return pl.DataFrame(rows, schema=schema.COMPILED_RUNS)


def calls(
    *made: Made, candidates: Mapping[str, Sequence[str]] | None = None, of_self: bool = True
) -> pl.DataFrame:
    rows = [
        {
            "rank": 0,
            "process": 1,
            "graph": 40,
            "call": 40 + number,
            "kernel": kernel,
            "origin": place,
            "operator": operator,
            "backward": backward,
            "of_self": of_self,
            "module": module,
            "modules": str(list((candidates or {}).get(module, [module]))).replace("'", '"'),
            "file": None if line is None else "train.py",
            "line": line,
            "function": None if line is None else "Block.forward",
            "function_line": None if line is None else 1,
        }
        for number, (kernel, origins) in enumerate(made)
        for place, (operator, module, line, backward) in enumerate(origins)
    ]
    return pl.DataFrame(rows, schema=schema.COMPILED_CALLS)


def places(ops: pl.DataFrame) -> list[tuple[str | None, int | None]]:
    return list(ops.select("module", "line").iter_rows())


GELU = "triton_poi_fused_gelu_0"
TWO_BLOCKS = calls(
    (GELU, [("aten::gelu", "blocks.0", 12, False)]),
    ("aten::mm", [("aten::mm", "blocks.0.down", 14, False)]),
    (GELU, [("aten::gelu", "blocks.1", 12, False)]),
    ("aten::mm", [("aten::mm", "blocks.1.down", 14, False)]),
)


def test_a_kernel_is_the_call_of_its_name_at_its_place_in_the_code() -> None:
    ops = operators(
        [
            ("CompiledFunction", 0, 100, None),
            (GELU, 10, 20, 0),
            ("aten::empty", 21, 22, 0),
            ("aten::mm", 25, 30, 0),
            ("aten::copy_", 26, 27, 3),
            (GELU, 40, 50, 0),
            ("aten::mm", 60, 70, 0),
            ("aten::mm", 200, 210, None),
        ]
    )
    placed = with_origins(ops, runs((1, 99)), TWO_BLOCKS)
    assert places(placed) == [
        ("Model", None),
        ("blocks.0", 12),
        ("Model", None),
        ("blocks.0.down", 14),
        # What it calls belongs to it.
        ("blocks.0.down", 14),
        ("blocks.1", 12),
        ("blocks.1.down", 14),
        # Outside of the run.
        ("Model", None),
    ]
    assert placed["origins"].null_count() == 3
    assert placed.drop("module", "file", "line", "function", "function_line", "origins").equals(
        ops.drop("module", "file", "line", "function", "function_line", "origins")
    )


def test_a_run_that_the_profile_cut_tells_nothing_of_what_it_has_too_few_of() -> None:
    ops = operators([(GELU, 40, 50, None), ("aten::mm", 60, 70, None), ("aten::mm", 80, 90, None)])
    placed = with_origins(ops, runs((1, 99)), TWO_BLOCKS)
    assert places(placed) == [("Model", None), ("blocks.0.down", 14), ("blocks.1.down", 14)]


@pytest.mark.parametrize("thread", [7, 8])
def test_only_runs_of_the_same_thread_count_and_each_counts_anew(thread: int) -> None:
    rows: list[Operator] = []
    for start in (0, 1000):
        rows += [(GELU, start + 10, start + 20, None), ("aten::mm", start + 25, start + 30, None)]
    made = calls(
        (GELU, [("aten::gelu", "act", 3, False)]), ("aten::mm", [("aten::mm", "fc", 4, False)])
    )
    placed = with_origins(operators(rows), runs((1, 99), (1001, 1099), thread=thread), made)
    known = [("act", 3), ("fc", 4)] * 2
    assert places(placed) == (known if thread == 7 else [("Model", None)] * 4)


def test_a_kernel_of_several_operators_lies_where_all_of_them_do() -> None:
    made = calls(
        ("a", [("aten::add", "blocks.0", 14, False), ("aten::gelu", "blocks.0.act", 9, False)]),
        ("b", [("aten::add", "blocks.0", 14, False), ("aten::sum", "blocks.1.norm", 11, False)]),
        ("c", [("aten::add", "head", 20, False), ("aten::sum", "blocks.1.norm", 11, False)]),
        # Gradients are added up nowhere.
        ("d", [("aten::add", "", None, True), ("aten::sum", "blocks.1.norm", 11, True)]),
        # The program calls it in no module but the compiled one.
        ("e", [("aten::mul", "", 30, False)]),
        # Computed again for the gradient, which it is about.
        ("f", [("aten::gelu", "blocks.0.act", 9, False), ("aten::mul", "blocks.1", 13, True)]),
    )
    rows: list[Operator] = [
        (name, 10 * place, 10 * place + 5, None) for place, name in enumerate("abcdef", 1)
    ]
    placed = with_origins(operators(rows), runs((1, 99)), made)
    assert places(placed) == [
        ("blocks.0", 14),
        ("blocks", 14),
        ("Model", 20),
        ("blocks.1.norm", 11),
        ("Model", 30),
        ("blocks.1", 13),
    ]
    assert decode_origins(placed["origins"][5]) == (
        KernelOrigin("aten::mul", "blocks.1", "train.py", 13, "Block.forward", 1),
        KernelOrigin("aten::gelu", "blocks.0.act", "train.py", 9, "Block.forward", 1),
    )


def test_code_that_several_modules_share_is_in_the_one_that_calls_it() -> None:
    """A block compiled by itself: each of its calls runs the same code."""
    both = {"up": ("blocks.0.up", "blocks.1.up")}
    made = calls(("aten::mm", [("aten::mm", "up", 11, False)]), candidates=both)
    ops = operators([("aten::mm", 10, 20, None), ("aten::mm", 110, 120, None)])
    ops = ops.with_columns(module=pl.Series(["blocks.0", "blocks.1"]))
    placed = with_origins(ops, runs((1, 99), (101, 199)), made)
    assert places(placed) == [("blocks.0.up", 11), ("blocks.1.up", 11)]
    # A variable other than self may be either of them.
    made = calls(("aten::mm", [("aten::mm", "up", 11, False)]), candidates=both, of_self=False)
    placed = with_origins(ops, runs((1, 99), (101, 199)), made)
    assert places(placed) == [("blocks.0", 11), ("blocks.1", 11)]
    # One that stands in a step's function is found by its end.
    only = {"model.up": ("up",)}
    made = calls(("aten::mm", [("aten::mm", "model.up", 11, False)]), candidates=only)
    ops = operators([("aten::mm", 10, 20, None)], module=None)
    assert places(with_origins(ops, runs((1, 99)), made)) == [("up", 11)]


def test_without_compiled_runs_nothing_changes() -> None:
    ops = operators([("aten::mm", 10, 20, None)])
    assert with_origins(ops, runs(), TWO_BLOCKS).equals(ops)
    assert with_origins(ops, runs((1, 99)), calls()).equals(ops)
