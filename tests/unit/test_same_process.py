"""A recording of Nsight Systems beside a trace of PyTorch's profiler: one rank, or two."""

from pathlib import Path

import msgspec
import polars as pl
import pytest

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.captures import join
from gpuprof.collectors.manifest import RankSource
from gpuprof.collectors.opening import open_trace
from gpuprof.profiler.traces import write_chrome_trace
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.work.attribution import attribute

DATA = Path(__file__).parents[1] / "data"
RECORDING = DATA / "nsys" / "h200_block.sqlite.gz"
HOUR_NS = 3_600_000_000_000


@pytest.fixture(scope="module")
def recording() -> Capture:
    return open_trace(RECORDING)


@pytest.fixture(scope="module")
def trace(recording: Capture, tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """The same work as a trace of another tool would have it."""
    path = tmp_path_factory.mktemp("traces") / "block.json"
    attributed = attribute(recording)
    write_chrome_trace(attributed, analyze(attributed), path, every_rank=False)
    return open_trace(path)


def with_process(
    capture: Capture, *, process: int, rank: int = 0, rank_from: RankSource = "order"
) -> Capture:
    """`capture` as another process recorded it."""
    (info,) = capture.processes
    info = msgspec.structs.replace(info, process=process, rank=rank, rank_from=rank_from)
    tables = {
        name: frame.with_columns(rank=pl.lit(rank, pl.Int32))
        for name, frame in capture.tables().items()
    }
    manifest = msgspec.structs.replace(capture.manifest, ranks=(rank,))
    return Capture(manifest, (info,), **tables)


def later(capture: Capture, by_ns: int) -> Capture:
    times = pl.col("start_ns", "end_ns") + by_ns
    tables = {
        name: frame.with_columns(times) if "end_ns" in frame.columns else frame
        for name, frame in capture.tables().items()
    }
    return Capture(capture.manifest, capture.processes, **tables)


def warnings_of(capture: Capture) -> str:
    return "\n".join(capture.processes[0].warnings)


def test_two_recordings_of_one_process_are_one_rank(recording: Capture, trace: Capture) -> None:
    for captures in ([recording, trace], [trace, recording]):
        joined = join(captures)
        assert joined.manifest.ranks == (0,)
        assert joined.manifest.source == "kineto"
        assert joined.kernels.height == trace.kernels.height
        said = f"left out: {recording.manifest.title}: Nsight Systems' recording of the same rank"
        assert said in warnings_of(joined)
        assert f"both are of process {trace.processes[0].process}" in warnings_of(joined)


def test_a_second_run_of_the_program_is_the_same_rank(recording: Capture, trace: Capture) -> None:
    run_again = later(with_process(trace, process=1), HOUR_NS)
    joined = join([recording, run_again])
    assert joined.manifest.ranks == (0,)
    assert "the same kernels for 100% of the device time" in warnings_of(joined)


def test_processes_at_one_time_are_two_ranks(recording: Capture, trace: Capture) -> None:
    joined = join([recording, with_process(trace, process=1)])
    assert joined.manifest.ranks == (0, 1)
    assert joined.kernels.height == recording.kernels.height + trace.kernels.height


def test_of_several_ranks_each_recording_is_of_the_trace_with_its_rank(
    recording: Capture, trace: Capture
) -> None:
    traces = [
        with_process(trace, process=10 + rank, rank=rank, rank_from="content") for rank in (0, 1)
    ]
    recordings = [
        with_process(recording, process=20 + rank, rank=rank, rank_from="file name")
        for rank in (0, 1, 2)
    ]
    joined = join([*recordings, *traces])
    # Of rank 2 there is no trace.
    assert joined.manifest.ranks == (0, 1, 2)
    assert [process.process for process in joined.processes] == [10, 11, 22]


def test_another_program_is_another_rank(recording: Capture) -> None:
    other = open_trace(DATA / "kineto" / "h100_block_train_bf16.json.gz")
    (info,) = recording.processes
    assert info.process is not None
    # Process ids of two machines may be equal.
    joined = join([recording, with_process(other, process=info.process)])
    assert joined.manifest.ranks == (0, 1)
