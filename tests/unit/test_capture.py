"""The capture's tables and what it says about itself."""

import polars as pl
import pytest

from gpuprof.collectors import schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Manifest, ProcessInfo


def capture(*ranks: int, **tables: pl.DataFrame) -> Capture:
    manifest = Manifest(tool_version="0", source="test", title="t", created_ns=0, ranks=ranks)
    return Capture(manifest, tuple(ProcessInfo(rank=rank) for rank in ranks), **tables)


def ops(*ranks: int) -> pl.DataFrame:
    rows = pl.DataFrame({"rank": ranks, "op_id": range(len(ranks))})
    return schema.conform("ops", rows)


def test_every_table_exists_and_starts_empty() -> None:
    tables = capture(0).tables()
    assert list(tables) == list(schema.TABLES)
    for name, frame in tables.items():
        assert (frame.height, frame.schema) == (0, schema.TABLES[name])


def test_every_table_has_its_rank_first() -> None:
    assert {next(iter(columns.items())) for columns in schema.TABLES.values()} == {
        ("rank", pl.Int32())
    }


def test_times_are_whole_nanoseconds() -> None:
    times = {
        (name, type_)
        for columns in schema.TABLES.values()
        for name, type_ in columns.items()
        if name.endswith("_ns")
    }
    assert {type_ for _, type_ in times} == {pl.Int64()}


def test_a_table_with_other_columns_is_refused_naming_them() -> None:
    with pytest.raises(ValueError, match=r"table ops .*'extra'"):
        capture(0, ops=ops(0).with_columns(extra=pl.lit(1)))
    with pytest.raises(ValueError, match=r"table ops .*'op_id'"):
        capture(0, ops=ops(0).with_columns(pl.col("op_id").cast(pl.Int32)))


def test_a_rank_has_its_own_rows_and_process() -> None:
    part = capture(0, 4, ops=ops(0, 4, 4)).rank(4)
    assert [process.rank for process in part.processes] == [4]
    assert part.ops["op_id"].to_list() == [1, 2]


def test_a_rank_that_is_not_there_is_refused_naming_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"no rank 1; this capture has \[0, 4\]"):
        capture(0, 4).rank(1)


def test_other_process_facts_leave_the_tables_alone() -> None:
    before = capture(0, ops=ops(0))
    after = before.with_processes((ProcessInfo(exit_code=3),))
    assert after.processes[0].exit_code == 3
    assert after.ops is before.ops


def test_conforming_orders_casts_and_fills_columns() -> None:
    frame = schema.conform("steps", pl.DataFrame({"end_ns": [2], "other": [9], "rank": [1]}))
    assert frame.schema == schema.STEPS
    (row,) = frame.to_dicts()
    assert (row["rank"], row["end_ns"], row["start_ns"]) == (1, 2, None)
