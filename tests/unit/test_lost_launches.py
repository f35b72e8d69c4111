"""Launches without device work: counted, said, and no figure made from what is left."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import kineto
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.lost_launches import device_launches, lost_count, unnamed
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

TRACE = Path(__file__).parents[1] / "data" / "kineto" / "h100_block_train_bf16.json.gz"


def without(tmp_path: Path, drop: Callable[[int], bool]) -> Capture:
    """The recorded training step without those of its kernels whose number `drop` tells."""
    document = json.loads(gzip.decompress(TRACE.read_bytes()))
    kernels = [event for event in document["traceEvents"] if event.get("cat") == "kernel"]
    dropped = {id(event) for number, event in enumerate(kernels) if drop(number)}
    document["traceEvents"] = [
        event for event in document["traceEvents"] if id(event) not in dropped
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    return kineto.read(path)


def rates(analysis: Analysis) -> dict[str, float | None]:
    return {f"{op.name} {op.detail} {op.phase}": op.flops_per_s for op in analysis.ops}


def test_a_whole_trace_has_lost_nothing() -> None:
    analysis = analyze(kineto.read(TRACE))
    assert (analysis.coverage.launches, analysis.coverage.lost_launches) == (159, 0)
    assert "no device work" not in " ".join(analysis.warnings)
    assert analysis.split is not None


@pytest.mark.parametrize(
    ("drop", "count", "share"),
    [(lambda number: number % 2 == 1, 79, "49.7%"), (lambda number: number == 5, 1, "0.6%")],
    ids=["half", "one"],
)
def test_launches_without_device_work_are_counted_and_said(
    drop: Callable[[int], bool], count: int, share: str, tmp_path: Path
) -> None:
    analysis = analyze(without(tmp_path, drop))
    assert analysis.coverage.lost_launches == count
    warning = f"{count} of 159 launches ({share}) have no device work recorded"
    assert any(text.startswith(warning) for text in analysis.warnings)


def test_no_rate_is_made_from_what_is_left_of_an_operator(tmp_path: Path) -> None:
    whole = rates(analyze(kineto.read(TRACE)))
    analysis = analyze(without(tmp_path, lambda number: number % 2 == 1))
    assert analysis.coverage.with_flops is not None
    assert analysis.coverage.with_flops < 0.5
    for name, rate in rates(analysis).items():
        if rate is not None:
            assert rate == pytest.approx(whole[name], rel=0.5)


def test_a_step_without_all_its_work_has_no_split_and_no_utilization(tmp_path: Path) -> None:
    analysis = analyze(without(tmp_path, lambda number: number == 5))
    assert (analysis.split, analysis.exposed, analysis.utilization) == (None, None, None)
    assert analysis.closed_form is None
    assert analysis.bottleneck.evidence == "launches of its steps have no device work recorded"


def test_an_operator_that_lost_a_kernel_among_several_has_no_rate(build: CaptureBuilder) -> None:
    build.mm(0, 100)
    build.kernel(10, 200, 300)
    build.kernel(20, 300, 310)
    build.rows["kernels"].pop(0)
    (op,) = analyze(build.build()).ops
    assert (op.name, op.flops, op.flops_per_s) == ("aten::mm", None, None)
    assert "no device work recorded" in op.bottleneck.evidence


def calls(*rows: tuple[str, int, int | None]) -> pl.DataFrame:
    names, starts, ids = zip(*rows, strict=True)
    return pl.DataFrame(
        {"name": names, "start_ns": starts, "correlation": ids}, strict=False
    ).with_columns(process=pl.lit(1, pl.Int64))


@pytest.mark.parametrize(
    "name",
    [
        *("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel"),
        *("cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch", "hipGraphLaunch"),
        *("hipLaunchKernel", "hipExtLaunchKernel", "hipModuleLaunchKernel"),
        *("hipExtModuleLaunchKernel", "hipLaunchCooperativeKernel", "hipHccModuleLaunchKernel"),
        "cudaLaunchKernel_v7000",
    ],
)
def test_calls_that_put_kernels_on_a_device(name: str) -> None:
    assert device_launches(calls((name, 0, 1))).height == 1


@pytest.mark.parametrize(
    "name", ["cudaLaunchHostFunc", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaStreamSynchronize"]
)
def test_calls_that_need_no_kernel(name: str) -> None:
    assert device_launches(calls((name, 0, 1))).is_empty()


@pytest.mark.parametrize("device", ["cuda", "cu", "hip"])
def test_launches_that_only_make_nodes_of_a_graph_make_no_work(device: str) -> None:
    launch = f"{device}LaunchKernel"
    made = device_launches(
        calls(
            (launch, 0, 1),
            (f"{device}StreamBeginCapture", 5, 2),
            (launch, 6, 3),
            (f"{device}StreamEndCapture", 7, 4),
            (launch, 8, 5),
        )
    )
    assert made["correlation"].to_list() == [1, 5]


def test_a_capture_may_begin_before_the_recording_or_end_after_it() -> None:
    launch = "cudaLaunchKernel"
    made = device_launches(
        calls(
            (launch, 0, 1),
            ("cudaStreamEndCapture", 5, 2),
            (launch, 6, 3),
            ("cudaStreamBeginCapture", 7, 4),
            (launch, 8, 5),
        )
    )
    assert made["correlation"].to_list() == [3]


def test_another_process_that_has_the_same_id_does_not_hide_a_loss() -> None:
    launches = device_launches(calls(("cudaLaunchKernel", 0, 1)))
    kernels = pl.DataFrame({"process": [2], "correlation": [1]})
    assert lost_count(unnamed(launches, kernels), kernels) == 1


def test_work_without_an_id_may_be_that_of_a_launch_which_no_work_names() -> None:
    analysis = analyze(kineto.read(TRACE.parent / "amd-rccl.json"))
    assert (analysis.coverage.launches, analysis.coverage.lost_launches) == (2, 0)
    assert analysis.exposed is not None


def queued_at_the_end(build: CaptureBuilder) -> None:
    for start in (0, 1000, 2000, 3000):
        build.kernel(start + 10, start + 100, start + 500)
    # Launched after all others whose work was recorded.
    del build.rows["kernels"][2:]


def test_work_that_was_still_queued_when_the_recording_ended_is_not_lost(
    build: CaptureBuilder,
) -> None:
    queued_at_the_end(build)
    analysis = analyze(build.build())
    assert (analysis.coverage.launches, analysis.coverage.lost_launches) == (4, 0)
    assert analysis.split is not None
    assert (analysis.split.step_ns, analysis.split.idle_ns) == (1400, 600)


def test_work_that_a_step_lacks_at_its_end_is_lost(build: CaptureBuilder) -> None:
    queued_at_the_end(build)
    build.step("profiled", 0, 4000)
    analysis = analyze(build.build())
    assert (analysis.coverage.lost_launches, analysis.split) == (2, None)


def test_work_that_is_missing_in_between_is_lost(build: CaptureBuilder) -> None:
    for start in (0, 1000, 2000, 3000):
        build.kernel(start + 10, start + 100, start + 500)
    del build.rows["kernels"][1:3]
    assert analyze(build.build()).coverage.lost_launches == 2
