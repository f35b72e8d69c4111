"""Which place operators take over: made-up trees with a thread of autograd, as on a GPU."""

from typing import Any

import polars as pl

from gpuprof.collectors import schema
from gpuprof.collectors.call_tree.autograd_nodes import are_nodes, differentiated
from gpuprof.collectors.call_tree.program_places import with_positions

_MAIN, _AUTOGRAD = 1, 2
_NODE = "autograd::engine::evaluate_function: "


def ops(*rows: dict[str, Any]) -> pl.DataFrame:
    """Operators; each lasts 1 ms unless said, and `parent` is the number of a row."""
    return schema.conform(
        "ops",
        pl.DataFrame(
            [
                {
                    "rank": 0,
                    "op_id": number,
                    "parent_id": row.get("parent"),
                    "name": row["name"],
                    "process": 9,
                    "thread": row.get("thread", _MAIN),
                    "start_ns": row["at"] * 1_000_000,
                    "end_ns": (row["at"] + row.get("lasts", 1)) * 1_000_000,
                    "sequence": row.get("sequence"),
                    "forward_thread": row.get("forward_thread"),
                }
                for number, row in enumerate(rows)
            ],
            infer_schema_length=None,
        ),
    )


def positions(*rows: tuple[int, int, int, str | None]) -> pl.DataFrame:
    """From when to when the main thread is at which line, and in which module."""
    return pl.DataFrame(
        [
            {
                "rank": 0,
                "process": 9,
                "thread": _MAIN,
                "start_ns": start * 1_000_000 - 500,
                "end_ns": end * 1_000_000 - 500,
                "file": "train.py",
                "line": line,
                "module": module,
            }
            for start, end, line, module in rows
        ],
        schema=schema.POSITIONS,
    )


def places(found: pl.DataFrame) -> list[tuple[int | None, str | None]]:
    return found.select("line", "module").rows()


def test_backward_on_a_thread_of_its_own_is_where_its_forward_was_called() -> None:
    found = with_positions(
        ops(
            {"name": "aten::linear", "at": 0, "sequence": 7, "lasts": 2},
            {"name": "aten::mm", "at": 1, "sequence": 7, "parent": 0},
            {"name": "aten::relu", "at": 3, "sequence": 8},
            {"name": _NODE + "ReluBackward0", "at": 10, "thread": 2, "sequence": 8, "lasts": 3},
            {"name": "ReluBackward0", "at": 11, "thread": 2, "sequence": 8, "parent": 3},
            {"name": _NODE + "MmBackward0", "at": 13, "thread": 2, "sequence": 7, "lasts": 3},
            {"name": "aten::mm", "at": 14, "thread": 2, "parent": 5},
            {"name": _NODE + "torch::autograd::AccumulateGrad", "at": 16, "thread": 2},
            {"name": "aten::add_", "at": 16, "thread": 2, "parent": 7},
            {"name": "aten::copy_", "at": 17, "thread": 3},
        ),
        positions((0, 3, 20, "layer"), (3, 5, 21, None), (5, 30, 22, None)),
    )
    assert places(found) == [
        *((20, "layer"), (20, "layer"), (21, None)),
        *((21, None), (21, None), (20, "layer"), (20, "layer")),
        # Autograd's own work is done while the main thread waits at that line; another thread's
        # is nobody's.
        *((22, None), (22, None), (None, None)),
    ]


def test_what_a_node_repeats_is_unknown_where_no_code_of_the_program_was_seen() -> None:
    found = with_positions(
        ops(
            {"name": "aten::mm", "at": 0, "sequence": 3},
            {"name": "aten::relu", "at": 1, "sequence": 4},
            {"name": _NODE + "ReluBackward0", "at": 4, "thread": 2, "sequence": 4, "lasts": 5},
            # Activation checkpointing: the forward again, which records a graph.
            {"name": "aten::mm", "at": 5, "thread": 2, "sequence": 1, "parent": 2},
            {"name": "aten::empty", "at": 5, "thread": 2, "parent": 3},
            {"name": "aten::threshold_backward", "at": 7, "thread": 2, "parent": 2},
        ),
        positions((0, 1, 10, "q"), (1, 3, 11, "act"), (3, 20, 12, None)),
    )
    assert places(found) == [
        *((10, "q"), (11, "act"), (11, "act")),
        *((None, None), (None, None), (11, "act")),
    ]


def test_each_thread_counts_its_nodes_for_itself() -> None:
    table = ops(
        {"name": "aten::mm", "at": 0, "sequence": 1},
        {"name": "aten::relu", "at": 1, "sequence": 2},
        {"name": "aten::add", "at": 1, "sequence": 2, "thread": 5},
        {"name": "MmBackward0", "at": 4, "thread": 2, "sequence": 1, "forward_thread": 70},
        {"name": "ReluBackward0", "at": 5, "thread": 2, "sequence": 2, "forward_thread": 70},
        {"name": "AddBackward0", "at": 6, "thread": 2, "sequence": 2, "forward_thread": 80},
        # Before what it could differentiate.
        {"name": "aten::mul", "at": 9, "sequence": 1},
    )
    nodes, made = differentiated(table, are_nodes(table["name"]))
    found = dict(zip(nodes.tolist(), made.tolist(), strict=True))
    assert {3: 0, 4: 1}.items() <= found.items()
    # Nothing tells which thread 80 is: of two that have its number, none.
    assert 5 not in found


def test_without_positions_nothing_is_filled() -> None:
    table = ops({"name": "aten::mm", "at": 0})
    assert with_positions(table, schema.empty("positions")).equals(table)
