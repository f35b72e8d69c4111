"""Any events are read as they are written."""

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuprof.collectors import kineto
from gpuprof.collectors.files import source
from gpuprof.collectors.kineto import blocks

RELAXED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 3000)
    monkeypatch.setattr(blocks, "_LONGEST_PLAUSIBLE", 1 << 16)
    monkeypatch.setattr(source, "PIECE_BYTES", 1000)


# Nanoseconds that Kineto has written: of an epoch, of its three-month base, and small ones.
NANOSECONDS = st.one_of(
    st.integers(0, 10**7),
    st.integers(4 * 10**15, 8 * 10**15),
    st.integers(17 * 10**17, 19 * 10**17),
)
# Without the character that marks numbers below.
NAMES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="@"), max_size=30)
KERNELS = st.tuples(
    NAMES, NANOSECONDS, st.integers(0, 10**9), st.integers(0, 9), st.integers(0, 2**40)
)


def microseconds(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


@given(st.lists(KERNELS, min_size=1, max_size=40), st.sampled_from([None, 2]), st.booleans())
@RELAXED
def test_what_is_written_is_read(
    tmp_path: Path, rows: list[tuple[Any, ...]], indent: int | None, packed: bool
) -> None:
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream}
        | {"ts": f"@{microseconds(start)}@", "dur": f"@{microseconds(duration)}@"}
        | {"args": {"stream": stream, "device": 0, "correlation": correlation}}
        for name, start, duration, stream, correlation in rows
    ]
    text = json.dumps({"traceEvents": events}, indent=indent)
    text = text.replace('"@', "").replace('@"', "")
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    capture = kineto.read(path)
    columns = ("name", "start_ns", "end_ns", "stream", "correlation")
    expected = [
        (name, start, start + duration, stream, correlation or None)
        for name, start, duration, stream, correlation in rows
    ]
    assert sorted(capture.kernels.select(columns).rows(), key=str) == sorted(expected, key=str)


@given(NANOSECONDS, st.integers(0, 10**7))
@RELAXED
def test_times_are_the_decimals_that_were_written(
    tmp_path: Path, start: int, duration: int
) -> None:
    path = tmp_path / "trace.json"
    event = (
        '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":1,'
        f'"ts":{microseconds(start)},"dur":{microseconds(duration)},"args":{{}}}}'
    )
    path.write_text(f'{{"traceEvents":[{event}]}}')
    (row,) = kineto.read(path).kernels.select("start_ns", "end_ns").rows()
    assert row == (start, start + duration)
    assert Decimal(microseconds(start)) * 1000 == start
