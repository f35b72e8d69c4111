"""What is compiled gives what Python gives."""

import gzip
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuprof.collectors.call_tree.inheriting import inherit, inherit_in_python
from gpuprof.collectors.call_tree.nesting import (
    innermost,
    innermost_in_python,
    nesting_order,
    parents,
    parents_in_python,
)
from gpuprof.collectors.kineto import columns, decode
from gpuprof.collectors.kineto.buffers import Elements
from gpuprof.collectors.kineto.findings import Findings
from gpuprof.collectors.kineto.tables import Tables, add_batch
from gpuprof.collectors.native import compiled
from gpuprof.roofline.host.call_times import Calls, CallTimes, call_times, call_times_in_python
from gpuprof.roofline.timeline.rows import free_rows, free_rows_in_python

pytestmark = pytest.mark.skipif(compiled is None, reason="nothing was compiled: no compiler")
DATA = Path(__file__).parent.parent / "data" / "kineto"

OP = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 10.5, "dur": 3}
CALL = {**OP, "cat": "cuda_runtime", "name": "cudaLaunchKernel"}
KERNEL = {**OP, "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7}
MEMORY = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 2, "ts": 1}


def rows(tables: Tables) -> dict[str, list[dict[str, Any]]]:
    return {name: frame.to_dicts() for name, frame in tables.all().items()}


def by_python(
    text: bytes, decoder: Callable[[bytes, Findings], decode.Batch | None] = decode.valid
) -> tuple[dict[str, list[dict[str, Any]]], Findings]:
    findings = Findings()
    tables = Tables(findings)
    batch = decoder(text, findings)
    assert batch is not None
    add_batch(tables, batch, 1)
    return rows(tables), findings


def read_compiled(text: bytes, findings: Findings | None = None) -> Tables | None:
    """The rows of the elements of `text`, an array but for damages."""
    buffer = text.removeprefix(b"[")
    # What stands behind the elements is not looked at.
    length = len(buffer) - buffer.endswith(b"]")
    elements = Elements(buffer, length)
    return columns.read(elements, 1, findings or Findings(), columns.file_texts())


def by_compiled(events: list[Any]) -> tuple[dict[str, list[dict[str, Any]]], Findings]:
    findings = Findings()
    found = read_compiled(json.dumps(events).encode(), findings)
    assert found is not None
    return rows(found), findings


@pytest.mark.parametrize(
    "event",
    [
        OP,
        {**OP, "args": None},
        {**OP, "args": {}},
        {**OP, "ts": 1751234567890123.457, "dur": 0.001},
        {**OP, "ts": -2.5},
        {**OP, "name": 'a "quoted" \\ name \u00e9 \U0001f600 \x7f'},
        {**OP, "tid": "thread 12", "pid": "7"},
        {**OP, "args": {"External id": 5, "Sequence number": None, "Fwd thread id": 0}},
        {
            **OP,
            "args": {"Input Dims": [[2, 3], []], "Input type": ["float", ""], "odd": {"a": [1]}},
        },
        {**OP, "args": {"Input Dims": None, "Input Strides": [], "Concrete Inputs": ["", "1"]}},
        {
            **OP,
            "name": "record_param_comms",
            "args": {"Collective name": "allreduce", "dtype": "B"},
        },
        CALL,
        {**CALL, "args": {"correlation": 0, "grid": [1, 2, 3]}},
        {**CALL, "args": {"correlation": 9, "kernel": "k", "grid": [1, 2, 3], "block": [4, 5, 6]}},
        {**CALL, "cat": "cuda_driver"},
        KERNEL,
        {**KERNEL, "args": {"device": 1, "stream": 7, "grid": [1, 1, 1], "block": [64, 1, 1]}},
        {**KERNEL, "cat": "gpu_memcpy", "args": {"bytes": 1024, "graph node id": 3, "name": "x"}},
        {**KERNEL, "cat": "gpu_memset", "args": {"Process Group Name": "0", "Group size": 8}},
        {**OP, "cat": "user_annotation", "name": "gloo:all_reduce", "args": {"Input Dims": [[4]]}},
        {**OP, "cat": "user_annotation", "name": "ProfilerStep#3"},
        {**OP, "cat": "Trace", "pid": "Traces 1", "tid": "profiler 2"},
        {**OP, "cat": "python_function", "name": "nn.Module: Linear_0"},
        {**OP, "cat": "python_function", "name": "<built-in method len>"},
        {**MEMORY, "args": {"Bytes": -512, "Addr": 139800000000000, "Device Type": 1}},
        {"cat": "ac2g", "ph": "s", "id": 3, "ts": "any"},
    ],
)
def test_an_event_is_read_as_python_reads_it(event: dict[str, Any]) -> None:
    for events in ([event], [OP, event, KERNEL]):
        assert by_compiled(events) == by_python(json.dumps(events).encode())


@pytest.mark.parametrize(
    "event",
    [
        # Without a category, of an unknown one, or of another phase.
        {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "GPU 0"}},
        {**OP, "cat": "Operator"},
        {**OP, "cat": "of tomorrow"},
        {**OP, "ph": "B"},
        # Another type than Kineto's, or another spelling.
        {**OP, "ts": "12.5"},
        {**OP, "ts": 1e22},
        {**OP, "tid": "main"},
        {**OP, "dur": None},
        {**OP, "args": {"external id": 7, "Input types": ["float"]}},
        {**KERNEL, "args": {"stream": "7", "grid": [1, 2]}},
        {**KERNEL, "args": {"bytes": 2**70}},
        {**OP, "args": []},
        7,
        [],
        None,
    ],
)
def test_what_is_written_otherwise_is_read_leniently(event: Any) -> None:
    expected = by_python(json.dumps([event]).encode(), decode.untyped)
    assert by_compiled([event]) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"[{",
        b"[,]",
        b"[{},]",
        b'[{"a":1,}]',
        b'[{"a":01}]',
        b'[{"a":.5}]',
        b'[{"a":1.}]',
        b'[{"a":1e}]',
        b'[{"a":+1}]',
        b'[{"a":"\x01"}]',
        b'[{"a":"\\x"}]',
        b'[{"a":"\\u12"}]',
        b'[{"a":"\\ud800"}]',
        b'[{"a":"\\ud800\\u0041"}]',
        b'[{"a":nul}]',
        b'[{"a":NaN}]',
        b'[{"a" 1}]',
        b"[{a:1}]",
        b"[{}] x",
        b"[{}]\0",
        b"[" * 300 + b"]" * 300,
        b'[{"cat":"cpu_op","ph":"X","name":"\xff","pid":1,"tid":1,"ts":1,"dur":1}]',
    ],
)
def test_what_is_no_plain_json_is_left_to_python(text: bytes) -> None:
    assert read_compiled(text) is None


@pytest.mark.parametrize("text", [b'{"a":"b"}', b"[1,2]", b"12", b"true", b"{}"])
def test_what_reaches_beyond_the_end_is_left_to_python(text: bytes) -> None:
    for length in range(1, len(text)):
        # A number may end anywhere; an element that no event is of comes back as text.
        found = compiled.read_events(bytearray(text + b" " * 40), length)
        assert found is None, text[:length]
    assert compiled.read_events(text, len(text)) is not None


def test_only_so_much_is_read_as_there_is() -> None:
    assert compiled.read_events(b"", 0) == ([], [], {}, [])
    assert compiled.read_events(b"  {} , {", 4) == ([], [], {}, [b"{}"])
    for length in (-1, 3):
        with pytest.raises(ValueError, match="not as long"):
            compiled.read_events(b"{}", length)
    with pytest.raises(TypeError):
        compiled.read_events(memoryview(b"{}"), 2)


def test_many_elements_that_are_no_events_are_left_to_python() -> None:
    assert read_compiled(b"[" + b"7," * 100_000 + b"7]") is None


@pytest.mark.parametrize(
    ("written", "nanoseconds"),
    [("1.0005", 1000), ("1.0015", 1002), ("1.00050000000000000001", 1001), ("0.0004999", 0)],
)
def test_times_are_rounded_as_decimals(written: str, nanoseconds: int) -> None:
    text = json.dumps([OP]).replace("10.5", written).encode()
    found = read_compiled(text)
    assert found is not None
    assert found.all()["ops"]["start_ns"].to_list() == [nanoseconds]


@pytest.mark.parametrize("name", ["h100_block_train_bf16.json.gz", "h100_block_infer_fp16.json.gz"])
def test_a_recording_is_read_as_python_reads_it(name: str) -> None:
    events = json.loads(gzip.decompress((DATA / name).read_bytes()))["traceEvents"]
    text = json.dumps(events).encode()
    found = read_compiled(text)
    assert found is not None
    expected, _ = by_python(text)
    for table, ordered in rows(found).items():
        # Python takes one kind of event after the other.
        assert sorted(ordered, key=str) == sorted(expected[table], key=str), table


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_damaged_text_is_read_as_python_reads_it_or_left(data: st.DataObject) -> None:
    inside = json.dumps([OP, {**KERNEL, "args": {"grid": [1, 2, 3], "Seq": 4}}])[1:-1].encode()
    damaged = bytearray(inside)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    text = bytes(b"[" + damaged + b"]")
    found = read_compiled(text)
    if found is not None:
        # Python's typed decoder passes over keys in older spellings, and over invalid UTF-8 in what
        # it skips, the lenient one over neither; here that is so element by element.
        ways = (decode.valid, decode.untyped, decode.repaired)
        decoders = [each for each in ways if each(text, Findings())]
        assert rows(found) in [by_python(text, decoder)[0] for decoder in decoders]


times = st.integers(0, 30)


points = st.lists(st.tuples(st.integers(-3, 3), st.integers(-1, 61)), max_size=20)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-2, 2), times, times), max_size=40), points)
def test_intervals_are_found_as_python_finds_them(
    intervals: list[tuple[int, int, int]], at: list[tuple[int, int]]
) -> None:
    ordered = sorted(
        ((t, s, s + length) for t, s, length in intervals), key=lambda i: (i[1], -i[2])
    )
    threads, starts, ends = np.array(ordered, np.int64).reshape(-1, 3).T
    assert (
        parents(threads, starts, ends).tolist() == parents_in_python(threads, starts, ends).tolist()
    )
    assert free_rows(starts, ends).tolist() == free_rows_in_python(starts, ends).tolist()
    nested = threads, starts, ends, parents(threads, starts, ends)
    where = np.array(at, np.int64).reshape(-1, 2).T
    assert innermost(*nested, *where).tolist() == innermost_in_python(*nested, *where).tolist()


calls = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-2, 2), times, times, st.booleans()), max_size=40
)


@settings(max_examples=200, deadline=None)
@given(calls)
def test_calls_are_timed_as_python_times_them(
    found: list[tuple[int, int, int, int, bool]],
) -> None:
    names, threads, starts, lengths, counted = np.array(found, np.int64).reshape(-1, 5).T
    order = nesting_order(starts, starts + lengths)
    timed = Calls(names, threads, starts, starts + lengths), order[counted[order] == 1], 4
    one, other = call_times(*timed), call_times_in_python(*timed)
    for field in fields(CallTimes):
        assert getattr(one, field.name).tolist() == getattr(other, field.name).tolist()


def test_numbers_beyond_the_calls_are_refused() -> None:
    column = np.zeros(2, np.int64)
    for names, order in ((column + 1, column), (column - 1, column), (column, column + 2)):
        with pytest.raises(ValueError, match="in their arrays"):
            compiled.call_times(names, column, column, column, order, 1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(-1, 8)), max_size=40), st.booleans())
def test_codes_are_inherited_as_python_does(rows: list[tuple[int, int]], ordered: bool) -> None:
    codes = np.array([code for code, _ in rows], np.int8)
    # Further on in the table where captures name them so; never in a circle.
    above = np.array([min(above, row - 1) for row, (_, above) in enumerate(rows)], np.int64)
    if not ordered:
        codes, above = codes[::-1], np.where(above < 0, -1, len(above) - 1 - above)[::-1]
    found = inherit(codes, above)
    assert found.dtype == np.int8
    assert found.tolist() == inherit_in_python(codes, above).tolist()


def test_parents_that_do_not_stand_before_their_rows_are_left_to_python() -> None:
    one, circle = np.zeros(2, np.int64), np.array([1, 0])
    for parent in (circle, np.array([-1, 7]), np.array([-2, -1])):
        assert compiled.inherit(one, parent) is None
        assert compiled.innermost(one, one, one, parent, one, one) is None


def test_arrays_of_another_kind_are_refused() -> None:
    short, long = np.zeros(1, np.int64), np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="equally long"):
        compiled.free_rows(short, long)
    with pytest.raises(ValueError, match="int64"):
        compiled.free_rows(short.astype(np.int32), short)
    with pytest.raises(TypeError):
        compiled.parents(short, short)
    with pytest.raises(ValueError, match="equally long"):
        compiled.innermost(short, short, short, short, short, long)


def test_a_column_keeps_its_codes() -> None:
    found = read_compiled(json.dumps([OP, OP, {**OP, "name": "other"}]).encode())
    assert found is not None
    assert found.all()["ops"]["name"].equals(pl.Series("name", ["aten::mm", "aten::mm", "other"]))
