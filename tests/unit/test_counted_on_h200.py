"""What an H200 counted, beside arithmetic that shares no code with ours: tests/data/measured."""

import json
import math
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

DATA = Path(__file__).parents[1] / "data" / "measured"
# Of the bytes of streaming operators, which L2 may keep a part of.
BYTES_WITHIN = 0.05
L2_BYTES = 62_914_560
DRAM_BYTES_PER_S = 4.8e12


@cache
def capture(name: str) -> Capture:
    return storage.load(DATA / name)


@cache
def analysis(name: str) -> Analysis:
    return analyze(capture(name))


def counted(kernel: str) -> dict[str, float]:
    """The metrics of the one counted launch of the products whose name holds `kernel`."""
    counters = capture("h200_counted_products").counters
    mine = counters.filter(pl.col("kernel").str.contains(kernel, literal=True))
    assert mine.select("kernel", "grid", "launch_index").unique().height == 1
    return dict(mine.select("metric", "value").iter_rows())


@pytest.mark.parametrize(
    ("kernel", "metric", "size", "times"),
    [
        ("f64f64", "sm__ops_path_tensor_src_fp64.sum", 2048, 1),
        ("simt_sgemm", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", 2048, 2),
        ("tf32f32", "sm__ops_path_tensor_src_tf32_dst_fp32.sum", 2048, 1),
        ("nvjet_sm90_hsh", "sm__ops_path_tensor_src_fp16.sum", 2048, 1),
        ("nvjet_sm90_tst", "sm__ops_path_tensor_src_bf16_dst_fp32.sum", 2048, 1),
        ("i16832gemm_s8", "sm__ops_path_tensor_src_int8.sum", 2048, 1),
        ("nvjet_sm90_qqtst", "sm__ops_path_tensor_src_fp8.sum", 4096, 1),
    ],
)
def test_products_were_counted_as_modelled_in_each_precision(
    kernel: str, metric: str, size: int, times: int
) -> None:
    assert counted(kernel)[metric] * times == 2 * size**3
    (point,) = (
        each
        for each in analysis("h200_counted_products").kernels
        if kernel in each.name and each.flops
    )
    assert sum(part.count for part in point.flops or ()) == 2 * size**3 * point.calls


@pytest.mark.parametrize(("kernel", "arrays_read"), [("CUDAFunctor_add", 2), ("AUnaryFunctor", 1)])
def test_streaming_bytes_are_the_arrays(kernel: str, arrays_read: int) -> None:
    array = 4 * 268_435_456
    found = counted(kernel)
    assert found["dram__bytes_read.sum"] == pytest.approx(arrays_read * array, rel=0.001)
    # What L2 still holds when the kernel ends is not written yet.
    left = array - found["dram__bytes_write.sum"]
    assert 0 <= left <= L2_BYTES
    assert left <= BYTES_WITHIN * array


def test_nearly_all_chosen_launches_of_a_training_found_their_kernel() -> None:
    taken = capture("h200_counted_training")
    (process,) = taken.processes
    assert process.counting is not None
    launches = taken.counters.select("kernel", "grid", "launch_index").unique()
    assert launches.height >= 0.95 * process.counting.chosen
    assert launches.height == process.counting.joined
    # Their work is most of the step's, forward and backward.
    kernels = taken.kernels.with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    counted_names = kernels.filter(pl.col("name").is_in(launches["kernel"].implode()))
    assert counted_names["ns"].sum() > 0.9 * kernels["ns"].sum()
    measured = analysis("h200_counted_training").measured
    assert measured is not None
    assert {kernel.phase for kernel in measured.kernels} >= {"forward", "backward", "optimizer"}


def test_each_large_difference_of_a_training_has_a_reason() -> None:
    measured = analysis("h200_counted_training").measured
    assert measured is not None
    for kernel in measured.kernels:
        for part in kernel.flops or ():
            if part.modelled and abs(part.measured / part.modelled - 1) > 0.01:
                about = {reason.about for reason in kernel.reasons}
                assert f"{part.unit} FLOPs" in about or part.unit == "vector", kernel
        for what, moved in (("read", kernel.bytes_read), ("written", kernel.bytes_written)):
            if moved is None or not moved.modelled or kernel.not_compared:
                continue
            if abs(moved.measured / moved.modelled - 1) > BYTES_WITHIN:
                assert f"bytes {what}" in {reason.about for reason in kernel.reasons}, kernel


def test_activity_of_a_copy_is_its_bytes_over_the_time() -> None:
    found = analysis("h200_copy").activity
    assert found is not None
    assert found.dram_active is not None
    steps = capture("h200_copy").steps.filter(pl.col("phase") == "timed")
    lengths_ns = (steps["device_ns"]).drop_nulls()
    by_arithmetic = 2 * (4 << 30) / (float(lengths_ns.median() or 0) / 1e9) / DRAM_BYTES_PER_S
    assert found.dram_active == pytest.approx(by_arithmetic, rel=0.05)
    assert found.tensor_active == 0


@pytest.mark.parametrize("name", ["h200_products", "h200_checkpointed_training"])
def test_what_lies_between_ofu_and_mfu_adds_up(name: str) -> None:
    found = analysis(name).activity
    assert found is not None
    assert found.reconciled is not None
    ofu, mfu = found.reconciled.ofu, found.reconciled.mfu
    named = sum(difference.fraction for difference in found.reconciled.differences)
    assert math.isclose(named + found.reconciled.unexplained, ofu - mfu, abs_tol=1e-9)
    # Tensor cores were busy for that share of the cycles, at that clock.
    assert found.tensor_active is not None
    clocks = found.reconciled.clock_mhz / found.reconciled.peak_clock_mhz
    assert math.isclose(ofu, found.tensor_active * clocks, rel_tol=0.001)


def test_recomputation_is_what_the_program_did_again() -> None:
    found = analysis("h200_checkpointed_training").activity
    assert found is not None
    assert found.reconciled is not None
    again = next(
        difference.fraction
        for difference in found.reconciled.differences
        if "checkpointed" in difference.reason
    )
    # The program's own arithmetic: the forward products of four layers, once more.
    step_ns = float(
        capture("h200_checkpointed_training")
        .steps.filter(pl.col("phase") == "timed")["device_ns"]
        .mean()  # type: ignore[arg-type]
    )
    assert again == pytest.approx(7_146_825_580_544 / (step_ns / 1e9) / 989.4e12, rel=0.03)


def test_with_nsys_each_kernel_has_its_operator_and_the_step_its_flops() -> None:
    found = analysis("h200_with_nsys")
    assert found.coverage.with_op == 1.0
    steps = capture("h200_with_nsys").steps.filter(pl.col("phase") == "profiled").height
    products = sum(
        part.count
        for kernel in found.kernels
        for part in kernel.flops or ()
        if part.kind == "matmul"
    )
    # Of the same program without nsys: "plain" of tests/gpu/visit_nsys.py. Scores that attention's
    # backward computes again are no model FLOPs.
    assert found.utilization is not None
    assert found.utilization.model_flops == 1_340_029_796_352
    assert products == steps * (found.utilization.hardware_flops or 0)


def test_the_recordings_tell_nothing_of_the_machine_that_made_them() -> None:
    for path in DATA.glob("*/rank=0/process.json"):
        process = json.loads(path.read_bytes())
        assert process["host"] == "gpu"
        assert process["fingerprint"]["environment"] == {}
