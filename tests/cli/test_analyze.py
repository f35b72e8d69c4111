"""`gpuprof analyze` as a process of its own."""

import gzip
import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Manifest, ProcessInfo
from gpuprof.profiler import traces as importing
from gpuprof.profiler.machine import calibration_cache
from gpuprof.roofline.analysis import ANALYSIS_FILE, Analysis

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]

DATA = Path(__file__).resolve().parents[1] / "data"
TRAIN = DATA / "kineto" / "h100_block_train_bf16.json.gz"
INFER = DATA / "kineto" / "h100_block_infer_fp16.json.gz"
NSYS = DATA / "nsys" / "h200_block.sqlite.gz"
NCU = DATA / "ncu" / "h200_targeted_raw.csv.gz"


def stored(capture: Path) -> Analysis:
    return msgspec.json.decode((capture / ANALYSIS_FILE).read_bytes(), type=Analysis)


def test_a_trace_alone_is_enough(gpuprof: Gpuprof, tmp_path: Path) -> None:
    result = gpuprof("analyze", str(TRAIN))
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "h100_block_train_bf16"
    assert "NVIDIA H100 80GB HBM3" in lines[1]
    assert lines[-1] == "gpuprof report h100_block_train_bf16.gpuprof"
    assert max(map(len, lines)) <= 80
    capture = tmp_path / "h100_block_train_bf16.gpuprof"
    assert [path.name for path in tmp_path.iterdir()] == [capture.name]
    assert stored(capture).steps.profiled == 3
    kernels = storage.load(capture).kernels
    assert kernels["op_id"].null_count() == 0
    assert gpuprof("report", capture.name).returncode == 0


def test_nothing_is_overwritten_without_force(gpuprof: Gpuprof, tmp_path: Path) -> None:
    manifest = Manifest(tool_version="0", source="gpuprof run", title="old.py", created_ns=1)
    storage.save(Capture(manifest, (ProcessInfo(),)), tmp_path / "absent.gpuprof")
    # Refused before the trace is even looked at.
    result = gpuprof("analyze", "absent.json")
    assert result.returncode == 1
    assert result.stderr == (
        "gpuprof: absent.gpuprof exists; choose another -o or pass --force to replace it\n"
    )
    (tmp_path / "old.json").write_text("mine")
    result = gpuprof("analyze", str(INFER), "--to-chrome", "old.json")
    assert result.returncode == 1
    assert (tmp_path / "old.json").read_text() == "mine"
    arguments = ("-o", "absent.gpuprof", "--to-chrome", "old.json", "-q")
    result = gpuprof("analyze", str(INFER), *arguments, "--force")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert stored(tmp_path / "absent.gpuprof").title == "h100_block_infer_fp16"
    assert json.loads((tmp_path / "old.json").read_text())["traceEvents"]


def test_force_replaces_no_folder_and_no_file_that_is_not_a_capture(
    gpuprof: Gpuprof, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.json.gz"
    shutil.copy(INFER, trace)
    for output in (".", "trace.json.gz"):
        result = gpuprof("analyze", "trace.json.gz", "-o", output, "--force")
        assert result.returncode == 1
        assert result.stderr == (
            f"gpuprof: {output} is no capture and will not be replaced; choose another -o\n"
        )
    result = gpuprof("analyze", "trace.json.gz", "--to-chrome", "trace.json.gz", "--force")
    assert result.returncode == 1
    assert "will not be replaced; choose another --to-chrome" in result.stderr
    assert trace.read_bytes() == INFER.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json.gz"]


def test_a_capture_is_shown_and_not_stored_again(gpuprof: Gpuprof, tmp_path: Path) -> None:
    first = gpuprof("analyze", str(INFER), "-o", "run.gpuprof")
    again = gpuprof("analyze", "run.gpuprof")
    assert again.returncode == 0
    assert again.stdout == first.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["run.gpuprof"]


def test_a_range_that_is_not_there_is_told_with_those_that_are(
    gpuprof: Gpuprof, tmp_path: Path
) -> None:
    recording = str(DATA / "nsys" / "h200_block.sqlite.gz")
    result = gpuprof("analyze", recording, "--step-range", "epoch")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1].startswith(
        "gpuprof: --step-range epoch: the ranges that take longest are 'step#' (6), 'forward' (6)"
    )
    assert not list(tmp_path.iterdir())
    result = gpuprof("analyze", recording, "--step-range", "step", "-o", "by_name.gpuprof")
    assert result.returncode == 0, result.stderr
    assert "ranges named 'step'  1 warm-up, 0 timed, 5 profiled" in result.stdout


def test_ranks_are_listed_and_one_is_chosen(gpuprof: Gpuprof, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for rank in (0, 1):
        shutil.copy(DATA / "kineto" / f"nccl-straggler-rank{rank}.json", job)
    result = gpuprof("analyze", "job")
    assert result.returncode == 0, result.stderr
    first_line = "2 ranks: 0, 1. This is rank 0; --rank R shows another."
    assert result.stdout.splitlines()[:3] == [first_line, "", "job"]
    assert stored(tmp_path / "job.gpuprof").rank == 0
    result = gpuprof("analyze", "job.gpuprof", "--rank", "1")
    assert "This is rank 1;" in result.stdout
    result = gpuprof("analyze", "job", "--rank", "1", "-o", "other.gpuprof")
    assert stored(tmp_path / "other.gpuprof").rank == 1
    result = gpuprof("analyze", "job.gpuprof", "--rank", "7")
    assert (result.returncode, result.stderr) == (2, "gpuprof: --rank 7: the ranks here are 0, 1\n")


def test_a_recording_and_its_counters_become_one_capture(gpuprof: Gpuprof, tmp_path: Path) -> None:
    result = gpuprof("analyze", str(NSYS), str(NCU))
    assert result.returncode == 0, result.stderr
    capture = storage.load(tmp_path / "h200_block.gpuprof")
    assert capture.counters["kernel"].n_unique() > 1
    assert capture.manifest.source == "nsys"


def test_a_chrome_trace_analyses_to_the_same_figures(gpuprof: Gpuprof, tmp_path: Path) -> None:
    result = gpuprof("analyze", str(TRAIN), "-o", "first", "--to-chrome", "chrome.json.gz")
    assert result.stderr == "gpuprof: wrote chrome.json.gz\n"
    with gzip.open(tmp_path / "chrome.json.gz") as file:
        assert json.load(file)["baseTimeNanoseconds"] > 0
    assert gpuprof("analyze", "chrome.json.gz", "-o", "second").returncode == 0
    first, second = stored(tmp_path / "first"), stored(tmp_path / "second")
    assert second.kernels == first.kernels
    assert second.ops == first.ops
    assert second.steps == first.steps
    assert second.device == first.device


def test_a_chrome_trace_has_one_of_two_endings(gpuprof: Gpuprof) -> None:
    result = gpuprof("analyze", "absent.json", "--to-chrome", "trace.html")
    assert result.returncode == 2
    assert result.stderr == (
        "gpuprof: --to-chrome trace.html: the name must end in .json or .json.gz\n"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cpu-only.json", "No GPU activity in the trace"),
        ("no-shapes.json", "record_shapes=True"),
        ("truncated.json", "INCOMPLETE"),
        ("gpu-annotation-and-sync.json", "No steps in the trace"),
    ],
)
def test_a_partial_trace_gives_a_truthful_partial_report(
    name: str, said: str, gpuprof: Gpuprof
) -> None:
    result = gpuprof("analyze", str(DATA / "kineto" / name))
    assert (result.returncode, result.stderr) == (0, "")
    assert said in " ".join(result.stdout.split())


def test_kernels_without_operators_are_reported_as_such(gpuprof: Gpuprof, tmp_path: Path) -> None:
    document = json.loads(gzip.decompress(INFER.read_bytes()))
    document["traceEvents"] = [
        event for event in document["traceEvents"] if event.get("cat") == "kernel"
    ]
    (tmp_path / "gpu-only.json").write_text(json.dumps(document))
    result = gpuprof("analyze", "gpu-only.json")
    assert (result.returncode, result.stderr) == (0, "")
    said = " ".join(result.stdout.split())
    assert "No operators in the trace" in said
    assert "No steps in the trace" in said
    assert "Coverage 0.0% of" in said


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.json", '{"traceEvents": []}', "no events"),
        ("list.json", "[]", "no events"),
        ("none.json", "", "no events: the file is empty"),
        ("notes.txt", "hello", "no known trace"),
    ],
)
def test_what_holds_no_trace_is_refused_in_one_line(
    name: str, content: str, message: str, gpuprof: Gpuprof, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    result = gpuprof("analyze", name)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"gpuprof: {name}: {message}")
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_missing_path_is_refused_in_one_line(gpuprof: Gpuprof) -> None:
    result = gpuprof("analyze", "absent.json")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "gpuprof: absent.json: no such file or folder\n"


def test_a_device_without_a_datasheet_row_is_named(gpuprof: Gpuprof, tmp_path: Path) -> None:
    text = gzip.decompress(INFER.read_bytes()).decode()
    (tmp_path / "a.json").write_text(text.replace("NVIDIA H100 80GB HBM3", "NVIDIA X1"))
    result = gpuprof("analyze", "a.json")
    assert result.returncode == 0
    assert stored(tmp_path / "a.gpuprof").ceilings == ()
    assert "NVIDIA X1" in result.stdout.split("Warnings")[1]


def test_progress_is_shown_on_a_terminal_only(
    tmp_path: Path, gpuprof_environment: dict[str, str]
) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuprof", "analyze", str(TRAIN)],
        cwd=tmp_path,
        env={**gpuprof_environment, "TERM": "xterm", "LANG": "C.UTF-8", "CI": ""},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # Linux says that the other end closed.
        pass
    os.close(ours)
    assert process.wait() == 0
    # The last thing said; what was over within a frame before is not drawn.
    assert b"Writing h100_block_train_bf16.gpuprof" in shown


def test_ceilings_measured_here_are_used_for_this_machines_device_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(calibration_cache, "is_empty", lambda: False)
    monkeypatch.setattr(importing, "calibration_of", asked.append)
    monkeypatch.setattr(importing, "local_gpus", lambda: frozenset({"NVIDIA A100-SXM4-80GB"}))
    importing.read_run([INFER], lambda _: None)
    assert asked == []
    monkeypatch.setattr(importing, "local_gpus", lambda: frozenset({"NVIDIA H100 80GB HBM3"}))
    importing.read_run([INFER], lambda _: None)
    assert asked == ["NVIDIA H100 80GB HBM3"]
    monkeypatch.setattr(calibration_cache, "is_empty", lambda: True)
    importing.read_run([INFER], lambda _: None)
    assert len(asked) == 1
