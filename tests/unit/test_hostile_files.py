"""Files that take the wrong turn on purpose or by accident, each of a kind that once did harm."""

import gzip
import json
import os
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
import pytest
from benchmark_results import nvbench, store, vllm, with_samples
from capture_builder import CaptureBuilder
from made_up_ranks import Idle, MadeUpRank, Work, summaries
from nsys_exports import write_export

from gpuprof.collectors import kineto, ncu, storage
from gpuprof.collectors.benchmark_results import documents
from gpuprof.collectors.benchmark_results.formats import read_runs
from gpuprof.collectors.errors import CaptureError, CommandError
from gpuprof.collectors.files import stored_json
from gpuprof.collectors.files.parquet_pages import expansion
from gpuprof.collectors.kineto import blocks, decode
from gpuprof.collectors.opening import open_trace
from gpuprof.profiler.configuration.file import read_configuration
from gpuprof.profiler.gate.baseline import read_baseline
from gpuprof.profiler.gate.results import read_result
from gpuprof.reports.html.page import render_html
from gpuprof.reports.markdown import render_markdown
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.claims.table import load_table
from gpuprof.roofline.ranks.summary import RankSummary

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
    # More of them than the compiled decoder gives back of a block.
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 17)
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


@pytest.mark.parametrize("numbers", [(0, 2**40), (1, 2**31 - 1), (2**31 - 2, 2**31 - 1)])
def test_a_job_of_impossibly_many_ranks_has_those_that_are_there(
    tmp_path: Path, numbers: tuple[int, int]
) -> None:
    rank, world_size = numbers
    info = f'"distributedInfo":{{"rank":{rank},"world_size":{world_size}}}'
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(f'{{{info},"traceEvents":[{events(2)}]}}')
    capture = open_trace(tmp_path)
    assert all(process.world_size <= 3 for process in capture.processes)
    assert analyze(capture).world_size <= 3


@pytest.mark.parametrize("line", ["x" * 8000, "a:1:1 [1] " * 800, "h:1:1 [0] NCCL INFO comm 0x1 "])
def test_a_log_of_long_lines_is_read_line_by_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "train.log"
    log = "node:1:1 [0] NCCL INFO comm 0x5 rank 0 nranks 2 cudaDev 0 - Init COMPLETE\n"
    path.write_text(log + (line[:8000] + " NCCL INFO\n") * 50)
    assert open_trace(path).manifest.ranks == (0,)


def test_of_a_log_without_end_as_much_is_kept_as_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuprof.collectors.nccl_log.process._UNITS", 1000)
    monkeypatch.setattr("gpuprof.collectors.nccl_log.reader._MOST_CALLS", 100)
    monkeypatch.setattr("gpuprof.collectors.nccl_log.reader._LINES_BETWEEN_COUNTS", 50)
    lines = [
        f"n:{process}:1 [0] NCCL INFO {text}"
        for process in range(100)
        for text in (
            f"comm 0x{process:x} rank {process} nranks 100 cudaDev 0 - Init COMPLETE",
            *(
                f"AllReduce: opCount {call:x} sendbuff 1 count 8 datatype 7 op 0 "
                f"comm 0x{process:x} [nranks=100]"
                for call in range(20)
            ),
        )
    ]
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines))
    capture = open_trace(path)
    assert 1 < len(capture.processes) < 100
    assert 0 < capture.collective_records.height <= 150


@pytest.mark.parametrize("last", [b"\x01", b"\x7f"])
def test_a_first_length_beyond_all_memory_is_no_crash(tmp_path: Path, last: bytes) -> None:
    with pytest.raises(CaptureError, match="not a profiler trace"):
        open_trace(trace(tmp_path, b"\xff" * 9 + last + b"rest"))


# -- results of other tools ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"duration": 1e400}, "duration: is inf"),
        ({"completed": 10**30}, "completed: is 1e+30"),
        ({"median_ttft_ms": 1e300}, "median_ttft_ms: is 1e+300"),
        ({"median_ttft_ms": None, "ttfts": [1.0], "itls": [2.0], "output_lens": [3]}, "no num"),
        (
            {"median_ttft_ms": None, "ttfts": [1.0], "itls": [[1e999]], "output_lens": [3]},
            "no numb",
        ),
        (
            {"median_ttft_ms": None, "ttfts": [], "itls": [], "output_lens": [], "errors": 7.5},
            "diff",
        ),
    ],
)
def test_figures_that_no_benchmark_has_are_refused(
    tmp_path: Path, changed: dict[str, object], problem: str
) -> None:
    path = store(tmp_path / "run.json", vllm(**changed))
    with pytest.raises(CaptureError, match=re.escape(problem)):
        read_runs(path)


def test_a_number_of_thousands_of_digits_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(vllm()).replace('"completed": 200', f'"completed": {"1" * 5000}'))
    with pytest.raises(CaptureError, match="completed: is inf"):
        read_runs(path)


def test_samples_that_are_another_file_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    result = with_samples(nvbench(), path)
    with (tmp_path / "run.json-bin" / "0.bin").open("r+b") as hole:
        hole.truncate(1 << 40)
    with pytest.raises(CaptureError, match="has 274877906944 samples"):
        read_runs(store(path, result))


def test_a_result_of_more_values_than_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MOST_BYTES", 1 << 20)
    path = tmp_path / "run.json"
    path.write_text("[" + "{}," * (1 << 15) + "{}]")
    with pytest.raises(CaptureError, match="too large; save it without the details"):
        read_runs(path)


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


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (pl.lit("a" * (64 << 20)), "64 MiB, which is more than its size allows"),
        # 3 kB, of which a dictionary has the text once.
        (pl.repeat("a" * 200_000, 1000), "190 MiB of text, which is more than its size allows"),
        # One row, which has them all.
        (pl.repeat(7, 10_000_000).implode(), "10000000 rows, which is more than its size allows"),
    ],
    ids=["one long text", "a long text in many rows", "one long list"],
)
def test_one_cell_that_is_more_than_its_file_can_hold_is_refused(
    stored: Path, text: pl.Expr, problem: str
) -> None:
    rows = pl.select(text.alias("name")).with_columns(start_ns=0, end_ns=0)
    rows.write_parquet(stored / "rank=0" / "launches.parquet", statistics=False)
    with pytest.raises(CaptureError, match=problem):
        storage.load(stored)


def test_a_long_string_in_many_rows_of_an_export_is_refused(
    tmp_path: Path, build: CaptureBuilder
) -> None:
    for number in range(4000):
        build.kernel(number, 10_000 + number, 10_001 + number, "k")
    path = write_export(build.build(), tmp_path / "long.sqlite", session_ns=0)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE StringIds SET value = ? WHERE value = 'k'", ["k" * 300_000])
    with pytest.raises(CaptureError, match="250 MiB of text, which is more than its size allows"):
        open_trace(path)


def test_strings_whose_length_no_page_tells_are_refused(stored: Path) -> None:
    file = stored / "rank=0" / "launches.parquet"
    rows = pl.DataFrame({"name": ["a"], "start_ns": [0], "end_ns": [0]})
    rows.write_parquet(file, compression="uncompressed")
    storage.load(stored)
    # A data page's header: a struct with one value, as an i32, in the encoding RLE_DICTIONARY.
    content = file.read_bytes()
    header = bytes((0x2C, 0x15, 2 * 1, 0x15, 2 * 8))
    assert header in content
    file.write_bytes(content.replace(header, header[:-1] + bytes((2 * 7,)), 1))
    with pytest.raises(CaptureError, match="strings that repeat the one before"):
        storage.load(stored)


def test_pages_expand_to_the_same_however_they_are_compressed(tmp_path: Path) -> None:
    names = [f"kernel_{number % 97}" * (number % 7) for number in range(100_000)]
    rows = pl.DataFrame({"name": names, "time": range(100_000), "none": [None] * 100_000})
    found = set()
    for compression in ("uncompressed", "zstd", "snappy", "gzip", "lz4", "brotli"):
        file = tmp_path / compression
        rows.write_parquet(file, compression=compression, row_group_size=25_000)
        with file.open("rb") as content:
            found.add(expansion(content))
    (expanded,) = found
    assert expanded.values == 25_000
    uncompressed = (tmp_path / "uncompressed").stat().st_size
    assert 0.9 * uncompressed < expanded.size < uncompressed


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
    monkeypatch.setattr(stored_json, "LARGEST_BYTES", 1 << 20)
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


def test_settings_and_claims_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "gpuprof.toml"
    path.write_text("# more\n" * (1 << 18))
    with pytest.raises(CommandError, match="settings of more than 1 MiB"):
        read_configuration(path)
    with pytest.raises(CaptureError, match="claims of more than 1 MiB"):
        load_table(str(path))


@pytest.mark.parametrize(
    ("frame", "changed", "problem"),
    [
        ("work", {"calls": 0}, "a row has calls out of range"),
        ("idle", {"nanoseconds": -1}, "a row has nanoseconds out of range"),
        ("steps", {"working_ns": None}, "only some of how its step divides"),
        ("collectives", {"start_ns": None}, "row 0 has no start_ns"),
    ],
)
def test_a_summary_of_a_rank_is_checked_at_the_door(
    frame: str, changed: dict[str, int | None], problem: str
) -> None:
    (summary, _) = summaries(MadeUpRank(((Work(9), Idle(5)),)), MadeUpRank(((Work(7),),)))
    columns = [pl.lit(value, pl.Int64).alias(name) for name, value in changed.items()]
    damaged = replace(summary, **{frame: summary.frame(frame).with_columns(columns)})
    with pytest.raises(ValueError, match=problem):
        RankSummary.from_bytes(damaged.to_bytes())


def test_a_summary_of_more_rows_than_its_bytes_can_hold_is_refused() -> None:
    (summary,) = summaries(MadeUpRank(((Work(9),),)))
    many = summary.states.clear(2_000_000)
    with pytest.raises(ValueError, match="2000000 rows, which is more than"):
        RankSummary.from_bytes(replace(summary, states=many).to_bytes())
