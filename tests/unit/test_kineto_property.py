"""Any events are read as they are written, and any bytes end in a capture or a CaptureError.

GPUPROF_FUZZ_INPUTS sets how many mutated traces are tried (20000 takes some ten minutes).
"""

import gzip
import json
import os
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuprof.collectors import kineto
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files import source
from gpuprof.collectors.kineto import blocks
from gpuprof.roofline.work.attribution import attribute
from gpuprof.roofline.work.op_tree import op_phases, range_members

DATA = Path(__file__).parents[1] / "data" / "kineto"
INPUTS = int(os.environ.get("GPUPROF_FUZZ_INPUTS", "400"))
BATCHES = 8

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
NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
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
    kept = [row for row in rows if "@" not in row[0]]
    found = capture.kernels.filter(~pl.col("name").str.contains("@"))
    columns = ("name", "start_ns", "end_ns", "stream", "correlation")
    expected = [
        (name, start, start + duration, stream, correlation or None)
        for name, start, duration, stream, correlation in kept
    ]
    assert sorted(found.select(columns).rows(), key=str) == sorted(expected, key=str)


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


Mutation = Callable[[random.Random, bytes], bytes]


def flip_bytes(chance: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def cut(chance: random.Random, content: bytes) -> bytes:
    return content[: chance.randrange(len(content))]


def drop(chance: random.Random, content: bytes) -> bytes:
    start = chance.randrange(len(content))
    return content[:start] + content[start + chance.randint(1, 200) :]


def repeat(chance: random.Random, content: bytes) -> bytes:
    start = chance.randrange(len(content))
    part = content[start : start + chance.randint(1, 2000)]
    return content[:start] + part * chance.randint(2, 5) + content[start:]


VALUES = (
    b"null", b"-1", b"1e400", b"NaN", b"-inf", b"99999999999999999999999", b'"7"', b'"stream 7"',
    b"[]", b"{}", b"[[[[[[[[", b"true", b"1e-9", b"-0.0", b"9" * 5000, b'"\\ud800"', b'"\xff"',
    b'"a\nb"', b"1753000000123456.789", b"-9223372036854775808", b"4e15", b"0x10", b'"C:\\x"',
)  # fmt: skip


def replace_value(chance: random.Random, content: bytes) -> bytes:
    """Put an odd value where a key has one."""
    for _ in range(chance.randint(1, 4)):
        colon = content.find(b":", chance.randrange(len(content)))
        if colon < 0:
            continue
        end = min(
            (at for mark in (b",", b"}", b"\n") if (at := content.find(mark, colon)) >= 0),
            default=len(content),
        )
        content = content[: colon + 1] + chance.choice(VALUES) + content[end:]
    return content


TOKENS = (b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n  {", b'},{"', b'"traceEvents": [')


def insert_token(chance: random.Random, content: bytes) -> bytes:
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(content))
        content = content[:at] + chance.choice(TOKENS) + content[at:]
    return content


MUTATIONS: tuple[Mutation, ...] = (flip_bytes, cut, drop, repeat, replace_value, insert_token)


def contents() -> list[bytes]:
    """Small traces to mutate: each case, in more layouts, and one packed."""
    found = [path.read_bytes() for path in sorted(DATA.glob("*.json"))]
    nested = json.loads((DATA / "nested-ops.json").read_text())
    found.append(json.dumps(nested, separators=(",", ":")).encode())
    found.append(json.dumps(nested["traceEvents"] * 20, indent=2).encode())
    replay = gzip.decompress((DATA / "h100_block_cudagraph.json.gz").read_bytes())
    found.append(replay[:12000])
    found.append(gzip.compress(found[-3], mtime=0))
    return [content for content in found if content]


def use(capture: Capture) -> None:
    """What follows reading must work on whatever was read."""
    capture = attribute(capture)
    assert op_phases(capture).height == capture.ops.height
    for members in range_members(capture, pl.Series(range(capture.kernels.height), dtype=pl.Int64)):
        assert len(members.kernels)
    assert (capture.kernels["end_ns"] >= capture.kernels["start_ns"]).all()
    assert capture.ops["op_id"].is_unique().all()


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.timeout(3600)
def test_mutated_traces_end_in_a_capture_or_a_capture_error(tmp_path: Path, batch: int) -> None:
    chance = random.Random(batch)
    originals = contents()
    path = tmp_path / "trace.json"
    read = 0
    refusals: list[str] = []
    for number in range(INPUTS // BATCHES):
        content = chance.choice(originals)
        for _ in range(chance.randint(1, 3)):
            content = chance.choice(MUTATIONS)(chance, content) or b"{"
        path.write_bytes(content)
        try:
            use(kineto.read(path))
            read += 1
        except CaptureError as error:
            refusals.append(str(error))
        except BaseException as error:
            kept = tmp_path / f"failed-{number}.json"
            kept.write_bytes(content)
            raise AssertionError(f"{kept}: {error!r}") from error
    # Both ends must be reached, or the mutations test nothing.
    assert read > 0
    assert refusals
    assert not any("\n" in refusal for refusal in refusals)
