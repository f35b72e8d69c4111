import gzip
import json
import os
import pickle
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from benchmark_results import aiperf, nvbench, sglang, vllm

from gpuprof.collectors import kineto, ncu, storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.opening import open_trace, open_traces, run_name
from gpuprof.collectors.opening.formats import FORMATS
from gpuprof.profiler.cluster.places import files_of_ranks

DATA = Path(__file__).resolve().parents[1] / "data"
KINETO = DATA / "kineto" / "h100_block_infer_fp16.json.gz"
NSYS = DATA / "nsys" / "h200_block.sqlite.gz"
NCU = DATA / "ncu" / "h200_targeted_raw.csv.gz"


def warnings_of(capture: Capture) -> str:
    return "\n".join(text for process in capture.processes for text in process.warnings)


@pytest.mark.parametrize(
    ("fixture", "source"),
    [(KINETO, "kineto"), (NSYS, "nsys"), (NCU, "ncu")],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("name", ["a", "a.csv", "a.json", "a.sqlite", "a.txt", "a.nsys-rep"])
@pytest.mark.parametrize("compressed", [True, False])
def test_content_decides_whatever_the_name(
    fixture: Path, source: str, name: str, compressed: bool, tmp_path: Path
) -> None:
    content = fixture.read_bytes()
    file = tmp_path / name
    file.write_bytes(content if compressed else gzip.decompress(content))
    assert open_trace(file).manifest.source == source


def test_a_program_may_print_before_the_counters(tmp_path: Path) -> None:
    file = tmp_path / "log"
    text = gzip.decompress(NCU.read_bytes()).decode()
    file.write_text("step 1, loss 3.2\n" + text)
    assert open_trace(file).counters.equals(ncu.read(NCU).counters)


def test_counters_that_powershell_redirected(tmp_path: Path) -> None:
    file = tmp_path / "counters"
    file.write_text(gzip.decompress(NCU.read_bytes()).decode(), encoding="utf-16")
    assert open_trace(file).counters.equals(ncu.read(NCU).counters)


def test_a_bare_array_of_events_is_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "bare"
    file.write_text(
        '[{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]'
    )
    assert open_trace(file).ops["name"].to_list() == ["aten::mm"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file"),
        (b"# Out of place Average bus bandwidth", "no known trace"),
    ],
)
def test_unknown_content_is_refused_with_what_was_expected(
    content: bytes, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "file.log"
    file.write_bytes(content)
    with pytest.raises(CaptureError, match=f"file.log: {message}; expected a PyTorch profiler"):
        open_trace(file)


def test_a_name_decides_where_the_content_does_not(tmp_path: Path) -> None:
    file = tmp_path / "cut.json.gz"
    file.write_bytes(gzip.compress(b""))
    with pytest.raises(CaptureError, match="no events: the file is empty"):
        open_trace(file)


def test_an_archive_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    shutil.copy(KINETO, folder)
    archive = Path(shutil.make_archive(str(tmp_path / "traces"), "gztar", folder))
    with pytest.raises(CaptureError, match=r"an archive; unpack it"):
        open_trace(archive)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no such file or folder"):
        open_trace(tmp_path / "absent.json")
    with pytest.raises(CaptureError, match="not a regular file"):
        open_trace(Path("/dev/null"))


def test_a_capture_loads_as_it_is(tmp_path: Path) -> None:
    capture = kineto.read(KINETO)
    storage.save(capture, tmp_path / "run.gpuprof")
    loaded = open_trace(tmp_path / "run.gpuprof")
    assert loaded.manifest == capture.manifest
    assert loaded.kernels.equals(capture.kernels)


def test_a_folder_is_a_set_of_ranks(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in (0, 1):
        shutil.copy(DATA / "kineto" / f"nccl-straggler-rank{rank}.json", folder)
    (folder / ".hidden.json").write_text("not read")
    (folder / "notes.txt").write_text("not a trace")
    (folder / "broken.json").write_text("{}")
    capture = open_trace(folder)
    assert capture.manifest.ranks == (0, 1)
    assert capture.manifest.title == "job"
    assert capture.kernels["rank"].unique().sort().to_list() == [0, 1]
    for process in capture.processes:
        text = "\n".join(process.warnings)
        assert "left out: " in text
        assert "notes.txt: no known trace" in text
        assert "broken.json: no events" in text
        assert ".hidden" not in text


def test_ranks_of_files_that_do_not_say_theirs_follow_their_numbers(tmp_path: Path) -> None:
    for number in (2, 10, 1):
        shutil.copy(DATA / "kineto" / "no-shapes.json", tmp_path / f"part{number}.json")
    seen: list[str] = []
    capture = open_trace(tmp_path, lambda path: seen.append(path.name))
    assert seen == ["part1.json", "part2.json", "part10.json"]
    assert capture.manifest.ranks == (0, 1, 2)
    assert "no file names its rank: ranks are numbered in the order of the files" in warnings_of(
        capture
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "no files in this folder; expected traces"),
        (("notes.txt",), "could be read, as in: .*notes.txt: no known trace"),
    ],
)
def test_a_folder_without_traces_is_refused(
    files: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).write_text("text")
    with pytest.raises(CaptureError, match=message):
        open_trace(tmp_path)


def test_a_recording_joins_the_counters_of_its_kernels() -> None:
    capture = open_traces([NCU, NSYS])
    assert capture.manifest.source == "nsys"
    assert capture.kernels.height == open_trace(NSYS).kernels.height
    keys = ["kernel", "grid", "block", "launch_index"]
    assert capture.counters.select(keys).unique().height == 24


def test_a_problem_names_the_file_among_several(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"absent\.csv: no such file"):
        open_traces([NSYS, tmp_path / "absent.csv"])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("trace.json", "trace"),
        ("a/host_12.1695835535.pt.trace.json.gz", "host_12.1695835535"),
        ("block.nsys.sqlite.gz", "block"),
        ("block.nsys-rep", "block"),
        ("counters.CSV", "counters"),
        ("run.gpuprof", "run"),
        ("v1.2/", "v1.2"),
        (".json", ".json"),
        ("/", "root"),
    ],
)
def test_a_run_is_named_after_its_file_without_endings(path: str, name: str) -> None:
    assert run_name(Path(path)) == name


def test_an_error_names_every_format_and_its_endings(tmp_path: Path) -> None:
    file = tmp_path / "file.log"
    file.write_text("nothing")
    with pytest.raises(CaptureError) as raised:
        open_trace(file)
    for one in FORMATS:
        assert one.name in raised.value.expected
        assert all(suffix in raised.value.expected for suffix in one.suffixes)


def pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=4)


NODE = {"id": 2, "name": "aten::mm", "ctrl_deps": 1}
EXECUTION_TRACE = json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [NODE]}).encode()


# Each message follows its length: a version, then a node with its id and name.
CHAKRA = b"\x07\x0a\x050.0.4" + b"\x0a\x08\x02\x12\x06matmul"
XLA_TRACE = (
    b'{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":[{"ph":"M","pid":1,'
    b'"name":"process_name","args":{"name":"/device:GPU:0"}},{"ph":"X","pid":1,"tid":2,"ts":1,'
    b'"dur":5,"name":"gemm_fusion"},{}]}'
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickled([1, 2]), "a pickle"),
        (pickle.dumps({"a": 1}, protocol=0), "a pickle"),
        (EXECUTION_TRACE, "an execution trace"),
        (CHAKRA, "an execution trace of Chakra"),
        (CHAKRA[:8], "an execution trace of Chakra"),
        (XLA_TRACE, "a Chrome trace of XLA's profiler"),
        (XLA_TRACE.replace(b":", b": "), "a Chrome trace of XLA's profiler"),
        (b"Device_id,Name,Type,OP State,Accelerator Core,Start Time(us)\n0,a", "a table of Ascend"),
        (b"[[0, 1], [[1, 2], [3, 4]]]", "a memory timeline"),
        *(
            (json.dumps(result).encode(), "a result of a benchmark .*`gpuprof gate results`")
            for result in (vllm(), sglang(), aiperf(), nvbench())
        ),
        (b"PK\x03\x04" + bytes(26) + b"model/data.pkl", "a file of torch.save"),
        (b"PK\x03\x04" + bytes(26) + b"trace.json", "an archive"),
        (b"\n\x90\x01\x12\x0d/device:GPU:0", "an XPlane profile"),
        # A track's description, then an event on it: fields 60 and 8 of a packet.
        (b"\n\x05\xe2\x03\x02\x08\x01\n\x04\x40\x07\x5a\x00", "a Perfetto trace"),
        # The sequence alone.
        (b"\n\x02\x50\x01", "a Perfetto trace"),
        (b"U3w[END]NVIDIA Nsight Systems Stream 2022.4.2.1", "a stream of Nsight Systems"),
        (b"<!DOCTYPE html><html></html>", "an HTML page"),
    ],
)
@pytest.mark.parametrize("name", ["file", "file.json", "file.csv"])
@pytest.mark.parametrize("compressed", [True, False])
def test_files_that_are_no_traces_are_named_for_what_they_are(
    content: bytes, message: str, name: str, compressed: bool, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_bytes(gzip.compress(content) if compressed else content)
    with pytest.raises(CaptureError, match=message) as raised:
        open_trace(file)
    assert raised.value.remedy
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "start",
    [b"\n", b"\nAPI log\n", b"\nXPU 1\nXPU 2\nXPU 3\n", b"\n\n\n", b"\n  step 1\n"],
)
def test_text_that_begins_with_a_line_end_is_no_protobuf(start: bytes, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(start + gzip.decompress(NCU.read_bytes()))
    assert open_trace(file).manifest.source == "ncu"


@pytest.mark.parametrize(
    ("name", "file", "message"),
    [
        ("mine.trace", "Trace1.run", "a recording of Apple's Instruments"),
        ("mine.trace", "form.template", "a recording of Apple's Instruments"),
        ("mine.gputrace", "metadata", "a GPU trace of Apple's Metal debugger"),
        ("host_12_2026_ascend_pt", "profiler_info.json", "the output of torch_npu's profiler"),
    ],
)
def test_folders_of_other_tools_are_named_for_what_they_are(
    name: str, file: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / file).write_text("")
    for read in (open_trace, lambda path: files_of_ranks(str(path))):
        with pytest.raises(CaptureError, match=message) as raised:
            read(tmp_path / name)
        assert raised.value.remedy


def test_a_folder_of_traces_may_end_like_a_recording(tmp_path: Path) -> None:
    folder = tmp_path / "job.trace"
    folder.mkdir()
    shutil.copy(KINETO, folder)
    assert open_trace(folder).manifest.ranks == (0,)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("rocpd_kernel_dispatch_0", "a recording of ROCm's profiler"),
        ("COMPUTE_TASK_INFO", "a database of Ascend's profiler"),
        ("tags", "an SQLite file, but not of Nsight Systems"),
    ],
)
def test_databases_of_other_profilers_are_named(table: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "results.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute(f"CREATE TABLE {table} (id)")
        database.commit()
    with pytest.raises(CaptureError, match=message):
        open_trace(file)


class RunsCode:
    """A pickle of it makes a folder when it is loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    (tmp_path / "file.pickle").write_bytes(pickle.dumps(RunsCode(tmp_path / "made")))
    with pytest.raises(CaptureError, match="a pickle"):
        open_trace(tmp_path / "file.pickle")
    assert not (tmp_path / "made").exists()


def test_an_execution_trace_beside_a_trace_is_no_rank(tmp_path: Path) -> None:
    (tmp_path / "rank0_et.json").write_bytes(EXECUTION_TRACE)
    shutil.copy(KINETO, tmp_path / "rank0.pt.trace.json.gz")
    capture = open_trace(tmp_path)
    assert capture.manifest.ranks == (0,)
    assert "left out: rank0_et.json: an execution trace" in warnings_of(capture)


def test_a_trace_whose_metadata_has_nodes_is_a_trace(tmp_path: Path) -> None:
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"nodes": ["a"], "ctrl_deps": 1, "traceEvents": [op]}))
    assert open_trace(file).ops.height == 1
