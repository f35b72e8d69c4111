"""The same events in every layout that writers use, and cut off or damaged in any place."""

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from gpuprof.collectors import kineto
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files import source
from gpuprof.collectors.kineto import blocks

DATA = Path(__file__).parents[1] / "data" / "kineto"
HEADER = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "GPU A", "numSms": 4}, {"id": 1, "name": "GPU B"}],
    "distributedInfo": {"rank": 2, "world_size": 4, "note": '"traceEvents": ['},
    "baseTimeNanoseconds": 1_700_000_000_000_000_000,
}


def events(count: int) -> list[dict[str, Any]]:
    """`count` operators, each with a launch and a kernel."""
    found: list[dict[str, Any]] = []
    for index in range(count):
        place = {"pid": 7, "tid": 9}
        at = 100 * index + 0.125
        found += [
            {"ph": "X", "cat": "cpu_op", "name": f"aten::op_{index % 3}", **place}
            | {"ts": at, "dur": 50.5, "args": {"External id": index, "Input Dims": [[2, 3], []]}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **place}
            | {"ts": at + 10, "dur": 5, "args": {"correlation": index + 1}},
            {"ph": "X", "cat": "kernel", "name": 'k<"a\\b", {1}>', "pid": 0, "tid": 3}
            | {
                "ts": at + 40,
                "dur": 20,
                "args": {"stream": 3, "correlation": index + 1, "grid": [1, 2, 3]},
            },
            {"ph": "s", "id": index, "cat": "ac2g", "name": "ac2g", **place, "ts": at + 10},
        ]
    found.append({"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python"}})
    return found


def kineto_layout(found: list[dict[str, Any]]) -> str:
    """As Kineto prints it: an event starts and ends on lines of their own."""
    rows = ["  " + json.dumps(event).replace('"args": {', '"args": {\n      ') for event in found]
    header = json.dumps(HEADER)[:-1]
    return f'{header},\n  "traceEvents": [\n' + ",\n".join(rows) + '\n  ],\n  "traceName": "t"\n}'


LAYOUTS = {
    "kineto": kineto_layout,
    "one line": lambda found: json.dumps({**HEADER, "traceEvents": found}),
    "compact": lambda found: json.dumps({**HEADER, "traceEvents": found}, separators=(",", ":")),
    "indent 2": lambda found: json.dumps({**HEADER, "traceEvents": found}, indent=2),
    "indent 1": lambda found: json.dumps({**HEADER, "traceEvents": found}, indent=1),
    "indent 0": lambda found: json.dumps({**HEADER, "traceEvents": found}, indent=0),
    "tabs": lambda found: json.dumps({**HEADER, "traceEvents": found}, indent="\t"),
    "metadata last": lambda found: json.dumps({"traceEvents": found, **HEADER}, indent=2),
    "metadata last, one line": lambda found: json.dumps({"traceEvents": found, **HEADER}),
    "windows line ends": lambda found: kineto_layout(found).replace("\n", "\r\n"),
    "byte order mark": lambda found: "\ufeff" + kineto_layout(found),
    "name first": lambda found: json.dumps(
        {**HEADER, "traceEvents": [dict(reversed(event.items())) for event in found]}
    ),
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    # So that small traces are cut into many blocks.
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(source, "PIECE_BYTES", 700)
    monkeypatch.setattr(source, "_OUTPUT_BYTES", 700)


def read(path: Path, content: str | bytes) -> Capture:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return kineto.read(path)


def assert_equal_facts(capture: Capture, expected: Capture) -> None:
    for name, frame in expected.tables().items():
        assert_frame_equal(capture.table(name), frame)


@pytest.fixture
def expected(tmp_path: Path) -> Capture:
    return read(tmp_path / "expected.json", kineto_layout(events(40)))


def test_the_reference_layout_is_read_whole(expected: Capture) -> None:
    assert (expected.kernels.height, expected.ops.height, expected.launches.height) == (40,) * 3
    (info,) = expected.processes
    assert (info.rank, info.world_size, info.process) == (2, 4, 7)
    assert [device.name for device in info.fingerprint.devices] == ["GPU A", "GPU B"]
    assert expected.kernels["start_ns"][1] == 1_700_000_000_000_140_125
    assert expected.kernels["name"][0] == 'k<"a\\b", {1}>'
    assert not any("INCOMPLETE" in warning for warning in info.warnings)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_capture(
    tmp_path: Path, expected: Capture, layout: str
) -> None:
    text = LAYOUTS[layout](events(40))
    capture = read(tmp_path / "trace.json", text)
    dims = pl.col("input_dims").str.replace_all(" ", "")
    tables = {**expected.tables(), "ops": expected.ops.with_columns(dims)}
    for name, frame in tables.items():
        actual = capture.table(name)
        assert_frame_equal(actual.with_columns(dims) if name == "ops" else actual, frame)
    assert capture.processes == expected.processes


@pytest.mark.parametrize("layout", ["kineto", "compact", "indent 2"])
def test_gzip_in_one_or_several_members_is_read(
    tmp_path: Path, expected: Capture, layout: str
) -> None:
    content = LAYOUTS[layout](events(40)).encode()
    half = len(content) // 2
    members = gzip.compress(content[:half]) + gzip.compress(content[half:]) + bytes(9)
    for packed in (gzip.compress(content), members):
        capture = read(tmp_path / "trace.json.gz", packed)
        assert_frame_equal(capture.kernels, expected.kernels)
        assert capture.processes == expected.processes


def test_a_member_of_gzip_may_start_anywhere_in_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = kineto_layout(events(2)).encode()
    packed = gzip.compress(content[:300]) + gzip.compress(content[300:])
    for size in (2, 3, 5, 7):
        monkeypatch.setattr(source, "PIECE_BYTES", size)
        assert read(tmp_path / "trace.json.gz", packed).kernels.height == 2


def test_the_first_bytes_tell_gzip_and_not_the_name(tmp_path: Path, expected: Capture) -> None:
    text = kineto_layout(events(40))
    assert_equal_facts(read(tmp_path / "plain.json.gz", text), expected)
    assert_equal_facts(read(tmp_path / "packed.json", gzip.compress(text.encode())), expected)


def test_a_bare_array_of_events_is_read(tmp_path: Path, expected: Capture) -> None:
    for indent in (None, 2):
        capture = read(tmp_path / "array.json", json.dumps(events(40), indent=indent))
        assert capture.processes[0].rank == 0
        base = HEADER["baseTimeNanoseconds"]
        shifted = expected.kernels.with_columns(
            pl.col("start_ns") - base, pl.col("end_ns") - base, rank=pl.lit(0, pl.Int32)
        )
        assert_frame_equal(capture.kernels, shifted)


def test_objects_nested_at_the_indent_of_events_do_not_mislead(tmp_path: Path) -> None:
    # Valid JSON whose inner objects start lines as events do.
    rows = [
        f'{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 1, "ts": {index}, "dur": 1, '
        '"args": {"stream": 1, "list": [\n  {"a": 1},\n  {"ph": 2}\n]}}'
        for index in range(60)
    ]
    text = '{"traceEvents": [\n  ' + ",\n  ".join(rows) + "\n]}"
    capture = read(tmp_path / "nested.json", text)
    assert capture.kernels["start_ns"].to_list() == [1000 * index for index in range(60)]
    assert not any("INCOMPLETE" in warning for warning in capture.processes[0].warnings)


@pytest.mark.parametrize("layout", ["kineto", "compact", "one line", "indent 2"])
def test_a_file_cut_anywhere_gives_the_events_before_the_cut(tmp_path: Path, layout: str) -> None:
    whole = LAYOUTS[layout](events(6)).encode()
    full = read(tmp_path / "whole.json", whole)
    array_end = whole.rindex(b"}") if layout != "kineto" else whole.rindex(b"]")
    for cut in range(1, len(whole), 61):
        try:
            capture = read(tmp_path / "cut.json", whole[:cut])
        except CaptureError:
            continue
        assert_frame_equal(capture.kernels, full.kernels.head(capture.kernels.height))
        if cut < array_end - 1:
            assert any("INCOMPLETE" in warning for warning in capture.processes[0].warnings), cut
    before_last = whole.rindex(b'"ph"')
    capture = read(tmp_path / "cut.json", whole[:before_last])
    assert capture.ops.height == 6


def test_a_cut_gzip_stream_gives_the_events_before_the_cut(tmp_path: Path) -> None:
    packed = gzip.compress(kineto_layout(events(400)).encode(), 1)
    capture = read(tmp_path / "cut.json.gz", packed[: len(packed) * 2 // 3])
    assert 100 < capture.kernels.height < 400
    (warning,) = (w for w in capture.processes[0].warnings if "INCOMPLETE" in w)
    assert "gzip stream ends early" in warning


def test_a_damaged_gzip_stream_is_reported(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(kineto_layout(events(400)).encode(), 1))
    # In the checksum of the content, which is read by then.
    packed[-6] ^= 0xFF
    capture = read(tmp_path / "damaged.json.gz", bytes(packed))
    assert capture.kernels.height >= 398
    (warning,) = (w for w in capture.processes[0].warnings if "INCOMPLETE" in w)
    assert "gzip stream is damaged" in warning


@pytest.mark.parametrize("layout", ["kineto", "indent 2", "compact"])
@pytest.mark.parametrize(
    "damage", [b'"cat": cat"', b'"cat": "cpu_op', b'"cat": [[', b'"cat": }}', b'\x00\xff"']
)
def test_a_damaged_event_costs_only_itself(tmp_path: Path, layout: str, damage: bytes) -> None:
    text = LAYOUTS[layout](events(60)).encode()
    key = b'"cat":"cpu_op"' if layout == "compact" else b'"cat": "cpu_op"'
    parts = text.split(key)
    assert len(parts) == 61
    broken = key.join(parts[:30]) + damage + key.join(parts[30:])
    capture = read(tmp_path / "broken.json", broken)
    assert capture.ops.height >= 58
    assert capture.kernels.height >= 59
    assert capture.processes[0].rank == 2
    assert any("could not be read" in warning for warning in capture.processes[0].warnings)


def test_unescaped_quotes_in_names_are_repaired(tmp_path: Path) -> None:
    text = kineto_layout(events(60)).replace('"aten::op_1"', '"say "aten" op_1"')
    capture = read(tmp_path / "quotes.json", text)
    assert capture.ops.height == 60
    assert (capture.ops["name"] == 'say "aten" op_1').sum() == 20
    assert any("40 unescaped quotes" in warning for warning in capture.processes[0].warnings)


def test_times_are_read_again_exactly_from_text_that_needs_repair(tmp_path: Path) -> None:
    # The typed decoder reads this, for the bad byte is in a key that it skips.
    event = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":1,"x":"\xff","dur":1,"ts":%s}'
    times = (b"1753000000123456.001", b"1753000000123457.002")
    content = b'{"traceEvents":[' + b",".join(event % time for time in times) + b"]}"
    capture = read(tmp_path / "trace.json", content)
    assert capture.kernels["start_ns"].to_list() == [
        1_753_000_000_123_456_001,
        1_753_000_000_123_457_002,
    ]


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_BOMB_BYTES", 1 << 20)
    packed = gzip.compress(b'{"traceEvents": [' + b" " * (8 << 20))
    with pytest.raises(CaptureError, match="decompresses to more than"):
        read(tmp_path / "bomb.json.gz", packed)


def test_an_endless_event_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_LONGEST", 1 << 16)
    text = '{"traceEvents": [{"ph": "' + "x" * (1 << 18)
    with pytest.raises(CaptureError, match="an event is longer"):
        read(tmp_path / "endless.json", text)


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"args":'])
def test_deep_nesting_ends_in_an_answer(tmp_path: Path, opening: str) -> None:
    with pytest.raises(CaptureError):
        read(tmp_path / "deep.json", '{"traceEvents": [' + opening * 20_000)


@pytest.mark.timeout(60)
def test_a_million_elements_that_are_no_events_take_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2 << 20)
    kernel = '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":1,"ts":1,"dur":1}'
    text = '{"traceEvents":[' + "1," * 300_000 + kernel + "," + "[]," * 100_000 + "2]}"
    capture = read(tmp_path / "scalars.json", text)
    assert capture.kernels.height == 1
    assert any("400001 malformed events" in warning for warning in capture.processes[0].warnings)


def test_a_tar_archive_is_refused_as_one(tmp_path: Path) -> None:
    content = kineto_layout(events(3)).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("trace.json")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    with pytest.raises(CaptureError, match="tar archive"):
        read(tmp_path / "traces.tar.gz", buffer.getvalue())
