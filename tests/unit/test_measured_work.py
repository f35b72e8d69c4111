"""roofline.measured_work and its reasons: which counters are compared with which model."""

from collections.abc import Mapping
from dataclasses import replace

import polars as pl
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import schema
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.launch_keys import launch_keys
from gpuprof.collectors.manifest import Device
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import OpCall, Scalar, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.dtypes import named
from gpuprof.roofline.measured.counters import ExecutedFlops, ExecutedWork
from gpuprof.roofline.measured.difference_reasons import Differing, reasons
from gpuprof.roofline.measured.measured_work import l2_capacity
from gpuprof.roofline.measured_figures import UNEXPLAINED, Measured, MeasuredKernel, MeasuredWork

MIB = 2**20
BF16 = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"


def counted(capture: Capture, of_launch: Mapping[int, Mapping[str, float]]) -> Capture:
    """`capture` with these counters, by the row of the kernel."""
    keys = launch_keys(capture.kernels, capture.launches)
    rows = pl.DataFrame(
        [
            {"row": row, "metric": metric, "value": float(value), "unit": ""}
            for row, values in of_launch.items()
            for metric, value in values.items()
        ],
        schema_overrides={"row": keys.schema["row"]},
    )
    return replace(capture, counters=schema.conform("counters", keys.join(rows, on="row")))


def measured(capture: Capture) -> MeasuredWork:
    found = analyze(capture).measured
    assert found is not None
    return found


def only(capture: Capture) -> MeasuredKernel:
    (kernel,) = measured(capture).kernels
    return kernel


def test_a_capture_without_counters_has_no_measured_work(build: CaptureBuilder) -> None:
    build.mm(0, 10)
    build.kernel(5, 20, 30)
    assert analyze(build.build()).measured is None


def test_calls_of_one_signature_are_a_mean_beside_the_model_of_one(build: CaptureBuilder) -> None:
    for start in (0, 100):
        build.mm(start, start + 10)
        build.kernel(start + 5, start + 20, start + 30)
    model = 2 * 64 * 32 * 16
    kernel = only(counted(build.build(), {0: {BF16: model}, 1: {BF16: 3 * model}}))
    assert (kernel.launches, kernel.calls, kernel.device_ns) == (2, 2, 20)
    (part,) = kernel.flops
    assert (part.measured, part.modelled, part.ratio) == (2 * model, model, 2)
    # Not collected is not none.
    assert kernel.bytes_read == Measured(None, 2 * (64 * 32 + 32 * 16))
    assert kernel.l2_bytes is None


def test_all_kernels_of_a_call_are_compared_with_it_together(build: CaptureBuilder) -> None:
    build.mm(0, 10)
    build.kernel(3, 20, 30, "gemm_splitK")
    build.kernel(5, 30, 40, "reduce")
    capture = build.build()
    whole = only(counted(capture, {0: {READ: 6000}, 1: {READ: 1000}}))
    assert whole.kernels == ("gemm_splitK", "reduce")
    assert (whole.bytes_read.measured, whole.calls, whole.launches) == (7000, 1, 2)
    part = only(counted(capture, {0: {READ: 6000}}))
    assert (part.kernels, part.calls) == (("gemm_splitK",), 0)
    assert part.bytes_read == Measured(6000, None)
    assert part.not_compared == "not all 2 kernels of its operator's call were counted"
    assert part.reasons == ()


def test_a_counter_that_one_launch_lacks_is_unknown_for_their_call(build: CaptureBuilder) -> None:
    build.mm(0, 10)
    build.kernel(3, 20, 30)
    build.kernel(5, 30, 40)
    kernel = only(counted(build.build(), {0: {READ: 6000, WRITTEN: 1}, 1: {READ: 1000}}))
    assert (kernel.bytes_read.measured, kernel.bytes_written.measured) == (7000, None)


@pytest.mark.parametrize(
    ("operator", "why"),
    [(False, "the trace has no operators"), (True, "no operator launched it")],
)
def test_a_kernel_without_operator_is_shown_alone(
    build: CaptureBuilder, operator: bool, why: str
) -> None:
    if operator:
        build.mm(0, 1)
    build.kernel(5, 20, 30)
    kernel = only(counted(build.build(), {0: {READ: 6000}}))
    assert (kernel.op, kernel.calls, kernel.bytes_read) == ("", 0, Measured(6000, None))
    assert kernel.not_compared.startswith(why)


@pytest.mark.parametrize("other", [16, 32])
def test_counters_that_may_be_another_shapes_are_compared_with_none(
    build: CaptureBuilder, other: int
) -> None:
    build.mm(0, 10, n=16)
    build.kernel(5, 20, 30, grid_x=132)
    build.mm(100, 110, n=other)
    build.kernel(105, 120, 130, grid_x=132)
    capture = counted(build.build(), {0: {READ: 6000}})
    unsure = replace(capture, counters=capture.counters.with_columns(certain=pl.lit(False)))
    assert only(capture).calls == 1
    kernel = only(unsure)
    if other == 16:
        # Of one shape it does not matter which launch it was.
        assert (kernel.op, kernel.calls) == ("aten::mm", 1)
    else:
        assert (kernel.op, kernel.calls, kernel.bytes_read.modelled) == ("", 0, None)
        assert "unknown which it was" in kernel.not_compared


def test_counters_of_work_outside_the_profiled_steps_are_not_shown(build: CaptureBuilder) -> None:
    build.step("profiled", 100, 200)
    for start in (0, 100):
        build.mm(start, start + 10)
        build.kernel(start + 5, start + 20, start + 30)
    found = measured(counted(build.build(), {0: {READ: 1}, 1: {READ: 2}}))
    assert (found.launches, found.launches_in_trace) == (1, 1)
    assert found.kernels[0].bytes_read.measured == 2


def test_the_l2_is_what_the_device_says_or_what_its_table_has() -> None:
    h100 = Device(index=0, kind="cuda", name="NVIDIA H100 80GB HBM3", multiprocessors=132)
    assert l2_capacity(h100) == 50 * MIB
    assert l2_capacity(Device(index=0, kind="cuda", name="H100", l2_cache_bytes=7)) == 7
    assert l2_capacity(Device(index=0, kind="cuda", name="of another make")) is None
    assert l2_capacity(None) is None


# -- reasons -----------------------------------------------------------------------------------


def product(m: int, k: int, n: int) -> tuple[OpCall, Cost]:
    matrices = tuple(Tensor(shape, named("bfloat16")) for shape in ((m, k), (k, n)))
    return costed(OpCall("aten::mm", matrices))


def costed(call: OpCall) -> tuple[OpCall, Cost]:
    cost = cost_of(call)
    assert cost is not None
    return call, cost


def told(
    what: tuple[OpCall, Cost],
    executed: ExecutedWork,
    kernel: str = "k",
    l2: int | None = 50 * MIB,
    launches: int = 1,
) -> list[tuple[str, str]]:
    found = reasons(Differing((kernel,), *what, executed, l2, launches))
    assert all(bool(reason.source) == (reason.text != UNEXPLAINED) for reason in found)
    return [(reason.about, reason.text) for reason in found]


RELU = costed(
    OpCall("aten::relu", (Tensor((64 * MIB,), named("float32")),)),
)
BYTES = 256 * MIB


def test_small_differences_need_no_reason_and_have_one_where_a_rule_fits() -> None:
    near = ExecutedWork(dram_bytes_read=BYTES * 104 // 100, dram_bytes_written=BYTES * 96 // 100)
    assert told(RELU, near) == []
    work = ExecutedWork(dram_bytes_read=BYTES * 109 // 100, dram_bytes_written=BYTES * 91 // 100)
    ((about, text),) = told(RELU, work)
    assert about == "bytes written"
    assert "still in L2" in text


@pytest.mark.parametrize("l2", [50 * MIB, None])
def test_what_no_rule_fits_is_unexplained(l2: int | None) -> None:
    twice = ExecutedWork(dram_bytes_read=2 * BYTES, dram_bytes_written=2 * BYTES)
    expected = [("bytes read", UNEXPLAINED), ("bytes written", UNEXPLAINED)]
    assert told(RELU, twice, l2=l2) == expected
    half = ExecutedWork(dram_bytes_read=BYTES // 2, dram_bytes_written=BYTES // 2)
    assert told(RELU, half, l2=l2) == expected


def test_l2_holds_back_no_more_than_its_size_for_each_launch() -> None:
    missing = ExecutedWork(dram_bytes_written=BYTES - 60 * MIB)
    assert told(RELU, missing) == [("bytes written", UNEXPLAINED)]
    ((about, text),) = told(RELU, missing, launches=2)
    assert about == "bytes written"
    assert text.startswith("62.9 MB of the result were still in L2 (52.4 MB, 2 launches)")


def test_a_kernel_known_to_read_twice_does_not_explain_three_times() -> None:
    kernel = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>()"
    ((_, text),) = told(RELU, ExecutedWork(dram_bytes_read=2 * BYTES), kernel)
    assert "again to be normalised" in text
    thrice = told(RELU, ExecutedWork(dram_bytes_read=3 * BYTES), kernel)
    assert thrice == [("bytes read", UNEXPLAINED)]


@pytest.mark.parametrize(
    ("kernel", "times", "explained"),
    [
        ("cunn_SoftMaxForward<4, float>", 3, True),
        ("cunn_SoftMaxForwardReg<float>", 3, False),
        ("cunn_SoftMaxBackward<4, float>", 2, True),
        ("layer_norm_grad_input_kernel_vectorized<float>", 2, True),
    ],
)
def test_softmax_is_read_again_only_by_kernels_that_do_not_keep_the_row(
    kernel: str, times: int, explained: bool
) -> None:
    ((_, text),) = told(RELU, ExecutedWork(dram_bytes_read=times * BYTES), kernel)
    assert (text != UNEXPLAINED) is explained


def test_a_product_that_fits_in_l2_is_not_read_again() -> None:
    small, large = product(1024, 1024, 1024), product(8192, 8192, 8192)
    for what, explained in ((small, False), (large, True)):
        read = 2 * (what[1].bytes_read or 0)
        ((_, text),) = told(what, ExecutedWork(dram_bytes_read=read))
        assert (text != UNEXPLAINED) is explained
    # More than ever passed L2 cannot have been read through it.
    impossible = ExecutedWork(dram_bytes_read=read, l2_bytes=read - 1)
    assert told(large, impossible) == [("bytes read", UNEXPLAINED)]


def test_a_split_sum_writes_partial_results() -> None:
    what = product(128, 65536, 128)
    written = ExecutedWork(dram_bytes_written=10 * 128 * 128 * 4)
    ((_, text),) = told(what, written, "gemm_128x128_splitK_8")
    assert "write partial results to a workspace" in text


def test_sizes_are_filled_up_to_the_tile_that_gives_the_count_exactly() -> None:
    def executed(count: int) -> ExecutedWork:
        return ExecutedWork(flops=(ExecutedFlops("tensor", "bf16", count),))

    what, kernel = product(100, 64, 200), "gemm_128x256_64x3"
    ((_, text),) = told(what, executed(2 * 128 * 256 * 64), kernel)
    assert "filled up to tiles of 128x256" in text
    near = told(what, executed(2 * 128 * 256 * 64 + 2), kernel)
    assert near == [("tensor FLOPs", UNEXPLAINED)]
    assert told(what, executed(2 * 100 * 64 * 200), kernel) == []


def test_a_cluster_of_tiles_is_filled_up_together() -> None:
    what = product(4100, 64, 4100)
    # 4100 are 21.4 tiles of 192: 22 along one side, and 22 in clusters of two along the other.
    # 9000 are 46.9: 47, and 48 in clusters.
    larger = product(9000, 64, 4100)
    kernel = "nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NNN"
    for each, sides, text in (
        (what, (22, 22), "tiles of 192x192"),
        (larger, (47, 22), "tiles of 192x192"),
        (larger, (48, 22), "tiles of 192x192 in clusters of 2x1"),
    ):
        count = 2 * 64 * sides[0] * 192 * sides[1] * 192
        executed = ExecutedWork(flops=(ExecutedFlops("tensor", "bf16", count),))
        ((_, said),) = told(each, executed, kernel)
        assert f"filled up to {text}, which" in said


def test_a_count_far_from_its_model_is_a_warning_with_its_cause(build: CaptureBuilder) -> None:
    for number, name in enumerate(("gemm_256x128_64x3", "k")):
        build.mm(100 * number, 100 * number + 10, 1000, 64, 200)
        build.kernel(100 * number + 5, 100 * number + 20, 100 * number + 30, name=name)
    modelled = 2 * 1000 * 64 * 200
    tiles = 2 * 1024 * 64 * 256
    same = analyze(counted(build.build(), {0: {BF16: modelled}, 1: {BF16: modelled}}))
    assert not [each for each in same.warnings if "of its model" in each]
    differing = analyze(counted(build.build(), {0: {BF16: tiles}, 1: {BF16: modelled}}))
    (alarm,) = [each for each in differing.warnings if "of its model" in each]
    assert alarm == (
        f"aten::mm has {tiles / modelled:.2f} times the tensor FLOPs of its model, in 50% of the "
        "counted kernels' time: the product's sizes are filled up to tiles of 256x128, which run "
        "whole"
    )
    unknown = analyze(counted(build.build(), {0: {BF16: modelled}, 1: {BF16: 1.5 * modelled}}))
    (alarm,) = [each for each in unknown.warnings if "of its model" in each]
    assert "1.50 times" in alarm
    assert alarm.endswith(UNEXPLAINED)


def test_arguments_that_may_be_one_tensor_are_found_by_what_is_left() -> None:
    shape = Tensor((4096, 4096), named("bfloat16"))
    what = costed(OpCall("aten::add", (shape, shape, Scalar("1"))))
    one = shape.bytes
    assert one is not None
    ((_, text),) = told(what, ExecutedWork(dram_bytes_read=one + 12_000), l2=None)
    assert text.startswith("2 arguments have the same shape and type")
    unlike = told(what, ExecutedWork(dram_bytes_read=one * 3 // 2), l2=None)
    assert unlike == [("bytes read", UNEXPLAINED)]


def test_fewer_reads_than_operands_can_come_from_l2() -> None:
    ((_, text),) = told(RELU, ExecutedWork(dram_bytes_read=BYTES - 40 * MIB))
    assert "can have held from the work before" in text
