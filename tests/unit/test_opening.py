import gzip
import shutil
from pathlib import Path

import pytest

from gpuprof.collectors import kineto, ncu, storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.opening import open_trace, open_traces, run_name

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
        (b"# Out of place Average bus bandwidth", "not a trace that is known here"),
        (b"\x80\x04\x95pickle", "not a trace that is known here"),
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
        assert "notes.txt: not a trace that is known here" in text
        assert "broken.json: no events" in text
        assert ".hidden" not in text


def test_ranks_of_files_that_do_not_say_theirs_follow_their_numbers(tmp_path: Path) -> None:
    for number in (2, 10, 1):
        shutil.copy(DATA / "kineto" / "no-shapes.json", tmp_path / f"rank{number}.json")
    seen: list[str] = []
    capture = open_trace(tmp_path, lambda path: seen.append(path.name))
    assert seen == ["rank1.json", "rank2.json", "rank10.json"]
    assert capture.manifest.ranks == (0, 1, 2)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "no files in this folder; expected traces"),
        (("notes.txt",), "no trace in this folder could be read, as in: .*notes.txt: not a trace"),
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
