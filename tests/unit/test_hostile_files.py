"""Files that take the wrong turn on purpose or by accident, each of a kind that once did harm."""

import gzip
import json
import os
import shutil
from pathlib import Path

import msgspec
import polars as pl
import pytest

from gpuprof.collectors import kineto, ncu, storage
from gpuprof.collectors.errors import CaptureError, CommandError
from gpuprof.collectors.files import stored_json
from gpuprof.collectors.kineto import blocks, decode
from gpuprof.collectors.opening import open_trace
from gpuprof.profiler.gate.baseline import read_baseline
from gpuprof.profiler.gate.results import read_result
from gpuprof.reports.html.page import render_html
from gpuprof.reports.markdown import render_markdown
from gpuprof.roofline.analyze import analyze

CAPTURE = Path(__file__).parents[1] / "data" / "captures" / "h100_lost_cuda_graph"


def events(count: int) -> str:
    return ",".join(
        json.dumps(
            {"ph": "X", "cat": "kernel", "name": f"k{number}", "pid": 0, "tid": 7}
            | {"ts": 100 + 20 * number, "dur": 10, "args": {"device": 0, "stream": 7}}
        )
        for number in range(count)
    )


def trace(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "trace.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# -- traces ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["1e9999999", "-1e9999999", "1e99999999999"])
def test_an_event_at_no_possible_time_is_left_out_alone(tmp_path: Path, number: str) -> None:
    text = f'{{"traceEvents":[{events(3)}]}}'.replace('"ts": 120,', f'"ts": {number},')
    capture = kineto.read(trace(tmp_path, text))
    assert capture.kernels["name"].to_list() == ["k0", "k2"]
    assert any("1 malformed event" in text for text in capture.processes[0].warnings)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_trace_whose_rest_was_not_written_is_read_up_to_there(
    tmp_path: Path, indent: int | None
) -> None:
    whole = json.dumps({"traceEvents": json.loads(f"[{events(4)}]")}, indent=indent).encode()
    end = whole.index(b"k3")
    capture = kineto.read(trace(tmp_path, whole[:end] + bytes(3 << 20)))
    assert capture.kernels["name"].to_list() == ["k0", "k1", "k2"]
    assert any("the rest of it is zeros" in text for text in capture.processes[0].warnings)


@pytest.mark.parametrize("element", ["{}", "[]", "1", '""', "null", '{"a":[{},{}]}'])
def test_a_stream_of_other_things_is_refused(
    tmp_path: Path, element: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_MOST_MALFORMED", 1000)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 3000)
    path = trace(tmp_path, f'{{"traceEvents":[{",".join([element] * 50_000)}')
    with pytest.raises(CaptureError, match=r"\d{4} elements of traceEvents are no events"):
        kineto.read(path)


def test_what_is_beside_the_events_is_not_repaired_at_any_size() -> None:
    small, large = (b'{"a": "' + b"\x01" * size + b'"}' for size in (10, 5 << 20))
    assert decode.document(small) == {"a": "\x01" * 10}
    assert decode.document(large) is None


def test_of_metadata_without_end_the_rest_is_not_kept() -> None:
    text = b'{"a": [' + b"{}," * (4 << 20) + b'{}], "b": 7}'
    assert decode.document(text) == {"b": 7}


def test_ten_of_many_files_without_a_trace_are_named(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"junk{number}.log").write_text("junk")
    trace(tmp_path, f'{{"traceEvents":[{events(2)}]}}')
    found = [w for w in open_trace(tmp_path).processes[0].warnings if w.startswith("left out:")]
    assert len(found) == 11
    assert found[-1] == "left out: 30 more files"


# -- Nsight Compute --------------------------------------------------------------------------------

HEADER = '"ID","Process ID","Kernel Name","Device","dram__bytes_read.sum","gpu__time_duration.sum"'
UNITS = '"","","","","byte","ns"'


@pytest.mark.parametrize(("times", "missing"), [(("", ""), 2), (("4000", ""), 1)])
def test_counters_without_times_are_a_capture(
    tmp_path: Path, times: tuple[str, str], missing: int
) -> None:
    rows = [f'"{n}","7","k","0","{64 * (n + 1)}","{time}"' for n, time in enumerate(times)]
    path = tmp_path / "page.csv"
    path.write_text("\n".join((HEADER, UNITS, *rows)) + "\n")
    capture = ncu.read(path)
    assert capture.kernels["start_ns"].null_count() == missing
    assert any(f"{missing} of 2 launches have no duration" in w for w in _warnings(capture))
    analysis = analyze(capture)
    assert sum(point.calls for point in analysis.kernels) == 2
    assert sum(point.device_ns for point in analysis.kernels) == (0 if missing == 2 else 4000)
    # A time that nobody told is not shown as none.
    assert "0.000" not in render_markdown(analysis)
    assert ">0.000<" not in render_html(analysis)


def test_counters_of_several_processes_without_times_are_a_capture(tmp_path: Path) -> None:
    path = tmp_path / "page.csv"
    rows = [f'"{n}","{process}","k","0","64",""' for n, process in enumerate((7, 8))]
    path.write_text("\n".join((HEADER, UNITS, *rows)) + "\n")
    capture = ncu.read(path)
    assert capture.manifest.ranks == (0, 1)
    assert analyze(capture).steps.length_ns is None


def _warnings(capture: object) -> tuple[str, ...]:
    return capture.processes[0].warnings  # type: ignore[attr-defined,no-any-return]


def test_a_giant_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.csv"
    path.write_text(f"{HEADER}\n{UNITS}\n" + '"0",' * (2 << 20))
    with pytest.raises(CaptureError, match="a line is longer than 4 MB"):
        ncu.read(path)


# -- what gpuprof wrote ----------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    shutil.copytree(CAPTURE, tmp_path / "it.gpuprof")
    return tmp_path / "it.gpuprof"


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("name", None, "row 0 has no name"),
        ("start_ns", -(2**63), "row 0 has a start_ns out of range"),
        ("end_ns", -5, "row 0 ends before it starts"),
    ],
)
def test_a_table_is_checked_at_the_door(
    stored: Path, column: str, value: object, problem: str
) -> None:
    file = stored / "rank=0" / "launches.parquet"
    frame = pl.read_parquet(file)
    odd = pl.Series(column, [value] * frame.height, dtype=frame.schema[column])
    frame.with_columns(odd).write_parquet(file)
    with pytest.raises(CaptureError, match=problem):
        storage.load(stored)


def test_a_table_of_more_rows_than_its_file_can_hold_is_refused(stored: Path) -> None:
    rows = pl.select(name=pl.repeat("a", 20_000_000), start_ns=0, end_ns=0)
    rows.write_parquet(stored / "rank=0" / "launches.parquet")
    with pytest.raises(CaptureError, match="20000000 rows, which is more than its size allows"):
        storage.load(stored)


def test_numbers_that_no_table_holds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "gate.json"
    number = "18446744073709551616"
    path.write_text(f'{{"schema_version": {number}, "name": "{number}"}}')
    with pytest.raises(CommandError, match="the number 18446744073709551616 is out of range"):
        read_result(path)

    class Named(msgspec.Struct):
        name: str

    # In a text it is one.
    assert stored_json.decode_stored(path.read_bytes(), Named).name == number


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_far_too_large_is_not_read(
    tmp_path: Path, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_json, "MOST_BYTES", 1 << 20)
    content = b'{"schema_version": 1, "x": [' + b"[]," * (1 << 20)
    path = tmp_path / "main.json.gz"
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    with pytest.raises(CommandError, match="is no baseline: a file of more than 1 MiB"):
        read_baseline(path)


def test_a_name_that_is_no_utf8_can_be_stored(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"bad\xff.json")
    try:
        path.write_text(f'{{"traceEvents":[{events(2)}]}}')
    except OSError:
        pytest.skip("this file system has names in UTF-8 alone")
    capture = open_trace(path)
    assert capture.manifest.title == r"bad\udcff"
    stored = storage.save(capture, tmp_path / "it.gpuprof")
    assert storage.load(stored).manifest.title == r"bad\udcff"
