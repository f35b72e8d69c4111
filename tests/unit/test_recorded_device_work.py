"""Nsight Systems has the device's work of a run, torch's profiler the operators: one capture.

The truth is a run on an H200 that torch's profiler recorded whole, taken apart: an export with the
kernels and calls on a clock of its own, and the capture without them.
"""

from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
import pytest
from nsys_exports import write_export

from gpuprof.collectors import nsys, storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.held_cupti import held_sentence
from gpuprof.collectors.joining.captures import join
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.work.attribution import attribute
from gpuprof.roofline.work.range_steps import with_evident_steps

RECORDED = Path(__file__).parents[1] / "data" / "captures" / "h200_llama_block"
MILLISECOND_NS = 1_000_000
HELD = held_sentence("Nsight Systems")


@pytest.fixture(scope="module")
def whole() -> Capture:
    return storage.load(RECORDED)


@pytest.fixture(scope="module")
def operators(whole: Capture) -> Capture:
    """What `gpuprof run` stores where Nsight Systems holds CUPTI."""
    process = msgspec.structs.replace(whole.processes[0], warnings=(HELD, "another warning"))
    empty = {name: whole.table(name).clear() for name in ("kernels", "launches")}
    return replace(whole.with_processes((process,)), **empty)


@pytest.fixture(scope="module")
def export(whole: Capture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # The session begins two seconds before the steps, and is a millisecond wrong about when.
    start_ns = whole.launches["start_ns"].to_list()[0] - 2000 * MILLISECOND_NS
    path = tmp_path_factory.mktemp("nsys") / "report.sqlite"
    return write_export(whole, path, session_ns=start_ns, late_ns=MILLISECOND_NS)


def work(capture: Capture) -> pl.DataFrame:
    columns = ("start_ns", "end_ns", "stream", "correlation", "op_id", "step", "kind", "grid_x")
    return capture.kernels.select(columns).sort("start_ns", "stream")


def test_each_kernel_finds_its_operator_and_step_again(
    whole: Capture, operators: Capture, export: Path
) -> None:
    recording = nsys.read(export)
    for captures in ([operators, recording], [recording, operators]):
        joined = attribute(join(captures))
        assert joined.manifest.ranks == (0,)
        assert work(joined).equals(work(whole))
        assert joined.processes[0].device == whole.processes[0].device
        # What was said of the missing work is true no more; the rest still is.
        assert joined.processes[0].warnings == ("another warning",)
    analysis, truth = analyze(joined), analyze(whole)
    assert analysis.split == truth.split
    assert analysis.bottleneck == truth.bottleneck
    assert analysis.utilization == truth.utilization


def test_a_recording_of_the_whole_program_adds_the_profiled_steps_only(
    whole: Capture, operators: Capture, export: Path
) -> None:
    steps = whole.steps.filter(pl.col("phase") == "profiled")
    last = steps["index"].to_list()[-1]
    # The last profiled step of before is one of the later ones, as in a program that goes on.
    fewer = replace(operators, steps=operators.steps.filter(pl.col("index") != last))
    joined = attribute(join([fewer, nsys.read(export)]))
    expected = whole.kernels.filter(pl.col("step") != last)
    assert 0 < expected.height < whole.kernels.height
    assert work(joined).equals(work(replace(whole, kernels=expected)))
    assert set(joined.launches["start_ns"]) < set(whole.launches["start_ns"])


def test_a_recording_of_the_timed_steps_is_told(
    whole: Capture, operators: Capture, tmp_path: Path
) -> None:
    timed = whole.steps.filter(pl.col("phase") == "timed")["start_ns"].to_list()[0]
    early = whole.launches[:1].with_columns(
        start_ns=timed + 1, end_ns=timed + 2, correlation=pl.lit(1, pl.Int64)
    )
    recorded = replace(whole, launches=pl.concat([early, whole.launches]))
    export = write_export(recorded, tmp_path / "all.sqlite", session_ns=timed - MILLISECOND_NS)
    joined = join([operators, nsys.read(export)])
    assert "recorded the timed steps too" in joined.processes[0].warnings[1]
    assert work(attribute(joined)).equals(work(whole))


def test_another_process_is_another_rank_and_work_that_is_there_is_not_added(
    whole: Capture, operators: Capture, export: Path, tmp_path: Path
) -> None:
    start_ns = whole.launches["start_ns"].to_list()[0]
    other = write_export(whole, tmp_path / "other.sqlite", session_ns=start_ns, process=7)
    assert join([operators, nsys.read(other)]).manifest.ranks == (0, 1)
    joined = join([whole, nsys.read(export)])
    assert joined.kernels.height == whole.kernels.height
    assert "left out" in joined.processes[0].warnings[-1]


def test_without_marks_the_session_s_start_counts_and_a_warning_says_what_that_means(
    whole: Capture, operators: Capture, tmp_path: Path
) -> None:
    start_ns = whole.launches["start_ns"].to_list()[0]
    export = write_export(
        replace(whole, steps=whole.steps.clear()), tmp_path / "plain.sqlite", session_ns=start_ns
    )
    joined = join([operators, nsys.read(export)])
    assert "holds no marks of gpuprof" in joined.processes[0].warnings[-1]
    assert work(attribute(joined)).equals(work(whole))


def test_the_recording_alone_has_the_marked_steps(whole: Capture, export: Path) -> None:
    recording = with_evident_steps(nsys.read(export))
    marked = whole.steps.filter(pl.col("phase") == "profiled")
    # By the marks its clock is that of the run, however wrong its session's start is.
    assert recording.steps["start_ns"].to_list() == marked["start_ns"].to_list()
    assert recording.processes[0].steps_found_by == "ranges named 'gpuprof step'"
    analysis = analyze(attribute(recording))
    assert analysis.bottleneck is not None
    assert analysis.steps.length_ns == pytest.approx(analyze(whole).steps.length_ns, rel=0.05)
