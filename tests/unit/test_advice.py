"""What to change, and what that gains: hand-made steps whose answers are worked out here."""

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors.manifest import Compilations, GraphBreak
from gpuprof.reports.blocks import Facts
from gpuprof.reports.sections.advice import SECTION, binding_fact
from gpuprof.roofline.advice.advise import advise
from gpuprof.roofline.advice.binding import binding
from gpuprof.roofline.advice.candidate import Candidate, Gain
from gpuprof.roofline.advice.findings import findings
from gpuprof.roofline.advice.waiting import waiting
from gpuprof.roofline.advice.without_cause import Step
from gpuprof.roofline.advice_figures import Advice
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.classes import classes
from gpuprof.roofline.host_figures import HostFigures
from gpuprof.roofline.idle_figures import IdleCause, IdleTime
from gpuprof.roofline.machine.achievable import achievable
from gpuprof.roofline.machine.ceilings import Ceiling
from gpuprof.roofline.step_figures import SplitPart, StepSplit, StepTimes

US = 1000
MS = 1000 * US
STEPS = 3
BF16 = '["c10::BFloat16"]'
BOTH = '["c10::BFloat16", "c10::BFloat16"]'
# An H100's datasheet: bytes in one ns.
DRAM = 3350

TIMES = StepTimes(
    found_by="test", warmup=1, timed=3, profiled=3, clock="CUDA events", median_ns=10 * MS
)


def candidate(finding: str, ns: int, *, what: str = "aten::mm", **more: Any) -> Candidate:
    return Candidate(finding, what, Gain(ns, ns, ns), "because", **more)


def found(analysis: Analysis) -> dict[str, Advice]:
    return {advice.finding: advice for advice in analysis.advice}


def timed_steps(build: CaptureBuilder, length: int, **columns: Any) -> list[int]:
    """Steps of `length`, timed and then profiled; returns where the profiled ones begin."""
    for number in range(STEPS):
        build.step("timed", number * length, (number + 1) * length, device_ns=length, **columns)
    starts = [(STEPS + number) * length for number in range(STEPS)]
    for start in starts:
        build.step("profiled", start, start + length)
    return starts


def test_the_largest_gain_comes_first_and_the_noise_is_left_out() -> None:
    small, large = candidate("tail", 4 * MS // 10), candidate("fusion", 2 * MS)
    noise = candidate("few-blocks", 2 * MS // 10)
    ranked = advise([small, noise, large], TIMES, 10 * MS)
    assert [advice.finding for advice in ranked] == ["fusion", "tail"]
    # Steps that differ by more than that hide the smaller one.
    unsteady = msgspec.structs.replace(TIMES, relative_spread=0.08, timed=4)
    assert [advice.finding for advice in advise([small, large], unsteady, 10 * MS)] == ["fusion"]


def test_what_may_gain_nothing_is_no_advice() -> None:
    unsure = replace(candidate("launches", MS), gain=Gain(5 * MS // 10, 0, 6 * MS))
    assert advise([unsure], TIMES, 10 * MS) == ()
    # The time is lost for certain; what is not sure is how much of it to this.
    likely = replace(candidate("allocator", MS), gain=Gain(3 * MS, 0, 3 * MS))
    assert advise([likely], TIMES, 10 * MS) != ()


def test_a_faster_device_helps_until_it_waits_for_the_host() -> None:
    busy_host = msgspec.structs.replace(TIMES, host_median_ns=8 * MS)
    one = candidate("below memory roof", 5 * MS)
    (advice,) = advise([one], busy_host, 10 * MS)
    assert advice.gain_ns == 2 * MS
    # A host that needs the whole step may have waited for the device in it.
    held_up = msgspec.structs.replace(TIMES, host_median_ns=10 * MS)
    assert advise([one], held_up, 10 * MS)[0].gain_ns == 5 * MS
    waits = candidate("synchronisation", 5 * MS, of_device=False)
    assert advise([waits], busy_host, 10 * MS)[0].gain_ns == 5 * MS


def test_two_changes_of_the_same_work_do_not_count_twice() -> None:
    key = (0, "forward", "")
    fused = candidate("fusion", 3 * MS, covers=frozenset([key, (1, "forward", "")]))
    faster = candidate("below memory roof", MS, covers=frozenset([key]))
    assert [advice.finding for advice in advise([faster, fused], TIMES, 10 * MS)] == ["fusion"]
    # The same kind of work at two lines does.
    twice = [replace(faster, place=f"train.py:{line}") for line in (3, 9)]
    assert len(advise(twice, TIMES, 10 * MS)) == 2


def test_one_change_at_many_places_is_one_row_and_others_are_apart() -> None:
    setting = [candidate("TF32", MS, what=name) for name in ("aten::mm", "aten::addmm")]
    lines = [candidate("synchronisation", MS, place=f"train.py:{line}") for line in (3, 9)]
    rows = advise([*setting, *lines], TIMES, 10 * MS)
    assert [(row.finding, row.gain_ns) for row in rows] == [
        ("TF32", 2 * MS),
        ("synchronisation", MS),
        ("synchronisation", MS),
    ]
    assert {place.what for place in rows[0].places} == {"aten::mm", "aten::addmm"}


def test_small_calls_together_gain_but_are_no_place() -> None:
    small = candidate("launches", 3 * MS, what="")
    named = replace(candidate("launches", MS), evidence="of a named one")
    (advice,) = advise([small, named], TIMES, 10 * MS)
    assert advice.gain_ns == 4 * MS
    assert [place.what for place in advice.places] == ["aten::mm"]
    assert advice.evidence == "of a named one"


def test_every_finding_is_about_a_class_and_says_what_to_do() -> None:
    for name, row in findings().items():
        assert row.kind in classes(), name
        assert row.change
        assert row.assumption
        assert not row.change.endswith("."), name


@pytest.mark.parametrize(
    ("unit", "precision", "work", "typical"),
    [
        ("tensor", "bf16", "GEMM", 0.72),
        ("tensor", "tf32", "GEMM", 0.70),
        # How attention is done matters more than its precision.
        ("tensor", "fp8", "attention", 0.50),
    ],
)
def test_what_is_achievable_depends_on_the_work(
    unit: Any, precision: str, work: str, typical: float
) -> None:
    ceiling = Ceiling(
        kind="compute", rate=1e15, source="datasheet", reference="", unit=unit, precision=precision
    )
    reach = achievable(ceiling, work)
    assert reach is not None
    assert reach.typical == typical
    assert reach.typical < reach.best <= 1


def test_a_chain_of_elementwise_operators_is_one_fusion_that_saves_what_passes_between() -> None:
    build = CaptureBuilder()
    elements = 8192 * 8192
    # tanh, then exp, of one tensor: each reads and writes all of it.
    each = round(4 * elements / DRAM / 0.9)
    for start in timed_steps(build, 2 * each + 100 * US):
        for number, name in enumerate(("aten::tanh", "aten::exp")):
            at = start + 10 * US + number * (each + 5 * US)
            build.op(name, at - 4 * US, at - 2 * US, dims="[[8192, 8192]]", types=BF16)
            build.kernel(at - 3 * US, at, at + each)
    analysis = analyze(build.build())
    advice = found(analysis)["fusion"]
    assert advice.places[0].what == "tanh, exp"
    # Of four passes over the tensor two are left.
    assert advice.gain_ns == pytest.approx(each, rel=0.01)
    assert advice.gain_range_ns == (advice.gain_ns, advice.gain_ns)
    assert analysis.binds is not None
    assert analysis.binds.kind == "memory"


@pytest.mark.parametrize("dims", ["[[8192, 4096]]", "[[4096, 16384]]"])
def test_operators_of_other_shapes_are_no_chain(dims: str) -> None:
    build = CaptureBuilder()
    for start in timed_steps(build, MS):
        for number, shape in enumerate(("[[8192, 8192]]", dims)):
            at = start + 10 * US + number * 200 * US
            build.op("aten::tanh", at - 4 * US, at - 2 * US, dims=shape, types=BF16)
            build.kernel(at - 3 * US, at, at + 100 * US)
    assert "fusion" not in found(analyze(build.build()))


@pytest.mark.parametrize(("columns", "found_it"), [(4096, True), (2048, False)])
def test_an_activation_after_a_product_could_be_its_epilogue(columns: int, found_it: bool) -> None:
    build = CaptureBuilder()
    for start in timed_steps(build, 2 * MS):
        product(build, start + 10 * US, MS, 8192, 4096, 4096)
        at = start + 20 * US + MS
        build.op("aten::relu", at - 4 * US, at - 2 * US, dims=f"[[8192, {columns}]]", types=BF16)
        build.kernel(at - 3 * US, at, at + 300 * US, grid_x=132, grid_y=4, grid_z=1)
    advice = found(analyze(build.build()))
    assert ("epilogue" in advice) == found_it
    if found_it:
        # It reads and writes nothing any more.
        assert advice["epilogue"].gain_ns == 300 * US
        assert advice["epilogue"].gain_range_ns == (150 * US, 300 * US)
        assert advice["epilogue"].places[0].what == "mm, relu"


def product(build: CaptureBuilder, at: int, length: int, m: int, k: int, n: int) -> None:
    build.mm(at - 6 * US, at - 4 * US, m, k, n)
    # 2 x 66 blocks fill all multiprocessors.
    build.kernel(at - 5 * US, at, at + length, "gemm", grid_x=66, grid_y=2, grid_z=1)


def test_a_product_with_odd_rows_is_padded_to_what_products_reach() -> None:
    length = 10 * MS
    roof = 2 * 8192 * 2047 * 50257 / 989.4e12 * 1e9
    build = CaptureBuilder()
    for start in timed_steps(build, length + 100 * US):
        product(build, start + 10 * US, length, 8192, 2047, 50257)
    advice = found(analyze(build.build()))["misaligned"]
    assert advice.gain_ns == pytest.approx(length - roof / 0.72, rel=0.01)
    low, high = advice.gain_range_ns
    assert low < advice.gain_ns < high < length - roof


def test_a_product_as_fast_as_good_ones_are_is_left_alone() -> None:
    roof = 2 * 8192**3 / 989.4e12 * 1e9
    length = round(roof / 0.74)
    build = CaptureBuilder()
    for start in timed_steps(build, length + 30 * US):
        product(build, start + 10 * US, length, 8192, 8192, 8192)
    analysis = analyze(build.build())
    assert analysis.advice == ()
    assert analysis.binds is not None
    assert analysis.binds.kind == "compute"
    # What it loses to the roof is no gain.
    assert analysis.bottleneck.kind == "compute"
    assert analysis.bottleneck.gain_ns == 0


def convolutions(build: CaptureBuilder, sizes: tuple[int, ...]) -> None:
    """A convolution a profiled step, far below its roof, of images of these sizes."""
    for start, size in zip(timed_steps(build, 10 * MS), sizes, strict=True):
        build.convolution(start + 10, start + 60, size=size)
        name = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x32x64"
        build.kernel(start + 20, start + 30, start + 9 * MS, name, grid_x=66, grid_y=2, grid_z=1)


def test_algorithms_of_convolutions_are_worth_trying_once_for_each_shape() -> None:
    build = CaptureBuilder()
    convolutions(build, (56, 56, 56))
    advice = found(analyze(build.build(facts={"torch_settings": {}})))["convolution algorithm"]
    assert 0 < advice.gain_range_ns[0] <= advice.gain_ns < 9 * MS
    # Where they are tried, and where nobody knows (a trace of another tool), another kernel is.
    for settings in ({"cudnn.benchmark": "on"}, None):
        others = found(analyze(build.build(facts={"torch_settings": settings})))
        assert "below compute roof" in others
        assert "convolution algorithm" not in others


def test_convolutions_whose_shapes_change_are_not_worth_trying() -> None:
    build = CaptureBuilder()
    convolutions(build, (56, 57, 58))
    others = found(analyze(build.build(facts={"torch_settings": {}})))
    assert "below compute roof" in others
    assert "convolution algorithm" not in others


def float32_products(build: CaptureBuilder, kernel: str, length: int) -> None:
    for start in timed_steps(build, length + 30 * US):
        at = start + 10 * US
        types = '["float", "float"]'
        dims = "[[4096, 4096], [4096, 4096]]"
        build.op("aten::mm", at - 6 * US, at - 4 * US, dims=dims, types=types)
        build.kernel(at - 5 * US, at, at + length, kernel, grid_x=66, grid_y=2, grid_z=1)


def test_products_in_tf32_gain_half_in_bfloat16_and_are_advised_to_it_once() -> None:
    kernel = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32"
    # As large products in TF32 run: 0.7 of 494.7 TFLOP/s.
    length = round(2 * 4096**3 / 494.7e12 / 0.7 * 1e9)
    build = CaptureBuilder()
    float32_products(build, kernel, length)
    analysis = analyze(build.build(facts={"allow_tf32_matmul": True}))
    assert not {"TF32", "below compute roof"} & found(analysis).keys()
    advice = found(analysis)["bfloat16"]
    # Twice the rate at the same share of it, and half of that for casts.
    assert advice.gain_ns == pytest.approx(length / 2, rel=0.01)
    assert advice.gain_range_ns[0] == pytest.approx(length / 4, rel=0.01)
    # It is no loss to the roof that these products have.
    assert analysis.bottleneck.gain_ns == 0
    assert analysis.settings is not None
    assert analysis.settings.costly == ()


def test_rows_of_images_are_nothing_to_pad() -> None:
    build = CaptureBuilder()
    # 7 values of 16 bits in a row, of which convolutions load whole channels.
    convolutions(build, (7, 7, 7))
    assert "misaligned" not in found(analyze(build.build()))


def test_products_on_vector_units_are_advised_to_tensor_cores_only() -> None:
    build = CaptureBuilder()
    float32_products(build, "ampere_sgemm_128x64_nn", 4 * MS)
    analysis = analyze(build.build(facts={"allow_tf32_matmul": False}))
    assert [advice.finding for advice in analysis.advice] == ["TF32"]


def test_pageable_copies_are_hidden_as_far_as_computing_goes() -> None:
    build = CaptureBuilder()
    moved = 64 * 2**20
    for start in timed_steps(build, 10 * MS):
        at = start + 10 * US
        name = "Memcpy HtoD (Pageable -> Device)"
        build.kernel(at - 5 * US, at, at + 8 * MS, name, kind="memcpy", bytes=moved)
        product(build, at + 8 * MS, MS, 4096, 4096, 4096)
    advice = found(analyze(build.build()))["pageable copies"]
    # Pinned it needs so long, of which a product of 1 ms hides 1 ms.
    pinned = moved / 64e9 * 1e9 / 0.86
    assert pinned > MS
    assert advice.gain_ns == pytest.approx(8 * MS - (pinned - MS), rel=0.01)


def test_work_that_is_done_twice_is_a_change_of_its_own() -> None:
    build = CaptureBuilder()
    for start in timed_steps(build, 4 * MS):
        for number, again in enumerate((False, True)):
            at = start + 10 * US + number * 1500 * US
            build.mm(at - 6 * US, at - 4 * US, 4096, 4096, 4096, recompute=again)
            build.kernel(at - 5 * US, at, at + MS, "gemm", grid_x=66, grid_y=2, grid_z=1)
    advice = found(analyze(build.build()))["recomputation"]
    assert advice.gain_ns == MS


def test_a_plan_for_each_new_length_is_no_compilation_of_the_programs() -> None:
    build = CaptureBuilder()
    for start in timed_steps(build, 60 * MS):
        # As cuDNN's attention on an H200, which plans for 58 ms before it launches.
        build.op("aten::_cudnn_attention_forward", start + MS, start + 58 * MS)
        build.kernel(start + 57 * MS, start + 57 * MS + 10 * US, start + 59 * MS)
    (advice, *_) = analyze(build.build()).advice
    assert advice.finding == "code loading"
    assert advice.places[0].what == "aten::_cudnn_attention_forward"
    assert advice.gain_ns == pytest.approx(56 * MS, rel=0.05)


def test_breaks_of_a_graph_share_the_waiting_for_launches() -> None:
    launches = IdleCause(kind="launch", nanoseconds=6 * MS, profiled_ns=6 * MS)
    idle = IdleTime(nanoseconds=6 * MS, profiled_ns=6 * MS, basis="timed", causes=(launches,))
    breaks = tuple(
        GraphBreak(reason="a print", file="/home/me/train.py", line=line, times=2)
        for line in (3, 9, 12)
    )
    compiled = Compilations(compiled=4, recompiled=0, compiling_ns=1, breaks=breaks)
    host = HostFigures(compilations=compiled)
    (advice,) = advise(
        waiting(Step(idle, TIMES, on_cpu=False), host, replays=False), TIMES, 10 * MS
    )
    assert advice.finding == "graph breaks"
    assert (advice.gain_ns, advice.gain_range_ns) == (3 * MS, (0, 6 * MS))
    assert [place.place for place in advice.places] == ["train.py:3", "train.py:9", "train.py:12"]


def test_waiting_that_a_timed_step_has_no_room_for_is_the_profilers() -> None:
    build = CaptureBuilder()
    # Timed in 1 ms, and under the profiler in 4: the device works for 1.1 ms of each.
    for number in range(STEPS):
        build.step("timed", number * MS, (number + 1) * MS, device_ns=MS)
    for number in range(STEPS):
        start = STEPS * MS + number * 4 * MS
        build.step("profiled", start, start + 4 * MS)
        product(build, start + 2 * MS, 1100 * US, 4096, 32, 4096)
    analysis = analyze(build.build())
    assert {findings()[advice.finding].kind for advice in analysis.advice} == {"memory"}
    assert all(advice.gain_ns <= MS for advice in analysis.advice)
    assert analysis.binds is not None
    assert analysis.binds.kind == "memory"


def test_a_step_that_waits_is_bound_by_what_it_waits_for() -> None:
    build = CaptureBuilder()
    for start in timed_steps(build, 4 * MS):
        product(build, start + 3 * MS, 500 * US, 4096, 4096, 4096)
    analysis = analyze(build.build())
    assert analysis.binds is not None
    assert analysis.split is not None
    assert analysis.binds.nanoseconds == analysis.split.idle_ns == 3500 * US
    assert analysis.binds.fraction == 0.875
    assert analysis.binds.kind in {part.kind for part in analysis.split.idle_parts}


def advice_lines(analysis: Analysis) -> str:
    blocks = SECTION.summary(analysis)
    facts = [fact for block in blocks if isinstance(block, Facts) for fact in block.facts]
    return " | ".join(f"{fact.value} {fact.note}" for fact in facts)


def test_shares_and_gains_say_of_what_they_are_where_no_timed_step_is_meant() -> None:
    build = CaptureBuilder()
    for number in range(STEPS):
        start = number * 20 * MS
        build.step("profiled", start, start + 20 * MS)
        product(build, start + 10 * US, 4 * MS, 4096, 4095, 4096)
    analysis = analyze(build.build())
    assert analysis.split is not None
    assert analysis.split.basis != "timed"
    assert analysis.advice
    assert "of a profiled step" in advice_lines(analysis)
    assert "% of the step" not in advice_lines(analysis)


def test_what_binds_a_step_tells_the_share_of_the_cause_that_it_names() -> None:
    split = StepSplit(
        step_ns=100,
        basis="timed",
        parts=(
            SplitPart("compute", 20),
            SplitPart("data loader", 50),
            SplitPart("launch", 30),
        ),
    )
    binds = binding(split, (), (), may_wait=True)
    assert binds is not None
    assert (binds.kind, binds.nanoseconds) == ("data loader", 80)
    note = binding_fact(binds, split).note
    assert note == "80.0% of the step has no device work; 50.0% is waiting for the data loader"


def test_evidence_of_a_trace_without_steps_is_of_the_trace() -> None:
    build = CaptureBuilder()
    for number in range(1200):
        product(build, number * 50 * US + 10 * US, 10 * US, 256, 256, 256)
    at = 1200 * 50 * US + 10 * US
    name = "Memcpy HtoD (Pageable -> Device)"
    build.kernel(at - 5 * US, at, at + 20 * MS, name, kind="memcpy", bytes=64 * 2**20)
    told = found(analyze(build.build()))
    assert re.search(r"\b1\d{3} times in the trace", told["launches"].evidence)
    assert told["pageable copies"].evidence.startswith("20 ms in the trace ")
    assert not any("a step" in advice.evidence for advice in told.values())


def projecting(
    build: CaptureBuilder, columns: tuple[int, ...], tensors: tuple[int | None, ...]
) -> int:
    """Products [4096, 2048] @ [2048, n] at half of what DRAM allows, in each of the steps."""
    lengths = [round(2 * 2 * (4096 * 2048 + 2048 * n + 4096 * n) / DRAM) for n in columns]
    for start in timed_steps(build, 2 * sum(lengths)):
        at = start + 10 * US
        for length, n, tensor in zip(lengths, columns, tensors, strict=True):
            build.mm(at - 6 * US, at - 4 * US, 4096, 2048, n, multiplied=tensor)
            build.kernel(at - 5 * US, at, at + length, "gemm", grid_x=66, grid_y=2, grid_z=1)
            at += length + 7 * US
    return sum(lengths)


def test_products_of_one_tensor_could_be_one_that_reads_it_once() -> None:
    build = CaptureBuilder()
    # So narrow that memory bounds them.
    length = projecting(build, (128, 32, 32), (1, 1, 1))
    advice = found(analyze(build.build()))["projections"]
    assert advice.places[0].what == "mm 4096x2048x128, mm 4096x2048x32 x2"
    tensor = 2 * 4096 * 2048
    together = 2 * (4096 * 2048 + 2048 * 192 + 4096 * 192)
    # All run at half of their roof, and so does what replaces them.
    assert advice.gain_ns == pytest.approx(length - 2 * together / DRAM, rel=0.001)
    assert advice.gain_range_ns[0] == pytest.approx(advice.gain_ns / 2, abs=1)
    assert "another kernel" in advice.uncertain
    # As near as good kernels come to DRAM's roof.
    assert advice.gain_range_ns[1] == pytest.approx(length - together / DRAM / 0.88, rel=0.001)
    assert f"{2 * tensor / 1e6:.3g} MB less, with 2 launches less" in advice.evidence


@pytest.mark.parametrize(
    "tensors",
    [
        # Of different tensors, of the same shape.
        (1, 2, 3),
        # What a trace of another tool tells.
        (None, None, None),
        # Another product stands between.
        (1, 2, 1),
    ],
)
def test_products_of_other_tensors_are_no_projections(tensors: tuple[int | None, ...]) -> None:
    build = CaptureBuilder()
    projecting(build, (128, 128, 128), tensors)
    assert "projections" not in found(analyze(build.build()))


def test_one_product_for_all_heads_and_products_that_arithmetic_bounds_gain_nothing() -> None:
    build = CaptureBuilder()
    projecting(build, (384,), (1,))
    assert "projections" not in found(analyze(build.build()))
    busy = CaptureBuilder()
    length = round(2 * 8192**3 / 989.4e12 / 0.74 * 1e9)
    for start in timed_steps(busy, 3 * length + 60 * US):
        for number in range(3):
            at = start + 10 * US + number * (length + 10 * US)
            busy.mm(at - 6 * US, at - 4 * US, 8192, 8192, 8192, multiplied=5)
            busy.kernel(at - 5 * US, at, at + length, "gemm", grid_x=66, grid_y=2, grid_z=1)
    # What they read again is hidden by what they compute, at the speed that good products have.
    assert analyze(busy.build()).advice == ()


IMAGES = "[[64, 512, 56, 56]"


@pytest.mark.parametrize(("training", "found_it"), [("False", True), ("True", False)])
def test_batch_norm_and_activation_after_a_convolution_are_its_epilogue_in_inference(
    training: str, found_it: bool
) -> None:
    build = CaptureBuilder()
    channels = ", [512]" * 4
    for start in timed_steps(build, 8 * MS):
        build.convolution(start + 10, start + 60)
        build.kernel(start + 20, start + 100, start + 5 * MS, grid_x=66, grid_y=2, grid_z=1)
        at = start + 5 * MS + 10 * US
        build.op(
            "aten::native_batch_norm",
            at - 4 * US,
            at - 2 * US,
            dims=f"{IMAGES}{channels}, [], [], []]",
            types='["c10::BFloat16", "float", "float", "float", "float", "", "", ""]',
            concrete_inputs=f'["", "", "", "", "", "{training}", "0.1", "1e-05"]',
        )
        build.kernel(at - 3 * US, at, at + 400 * US)
        at += 410 * US
        build.op("aten::relu", at - 4 * US, at - 2 * US, dims=f"{IMAGES}]", types=BF16)
        build.kernel(at - 3 * US, at, at + 300 * US)
    advice = found(analyze(build.build()))
    assert ("epilogue" in advice) == found_it
    if found_it:
        assert advice["epilogue"].places[0].what == "cudnn_convolution, native_batch_norm, relu"
        # But for the norm's four factors a channel nothing is left of both.
        assert advice["epilogue"].gain_ns == pytest.approx(700 * US, rel=1e-3)
        assert "native_batch_norm and relu take 700 µs" in advice["epilogue"].evidence
    # Also in training the norm and the activation can be one kernel.
    assert ("fusion" in advice) == (not found_it)


@pytest.mark.parametrize(("axis", "found_it"), [("[-1]", True), ("[0]", False)])
def test_a_norm_that_is_written_out_is_one_kernel(axis: str, found_it: bool) -> None:
    whole, one = "[8192, 8192]", "[8192, 1]" if found_it else "[1, 8192]"
    number = ', "Scalar"'
    reduced = {"types": '["float", "", "", ""]', "concrete_inputs": f'["", "{axis}", "True", ""]'}
    both = {"types": '["float", "float"]'}
    # x squared, its mean, a little more, the root, times x, times the weight; passes over x.
    calls: list[tuple[str, int, dict[str, str]]] = [
        ("aten::pow", 2, {"dims": f"[{whole}, []]", "types": f'["float"{number}]'}),
        ("aten::mean", 1, {"dims": f"[{whole}, [], [], []]", **reduced}),
        ("aten::add", 0, {"dims": f"[{one}, [], []]", "types": f'["float"{number}{number}]'}),
        ("aten::rsqrt", 0, {"dims": f"[{one}]", "types": '["float"]'}),
        ("aten::mul", 2, {"dims": f"[{whole}, {one}]", **both}),
        ("aten::mul", 2, {"dims": f"[[8192], {whole}]", **both}),
    ]
    pass_ns = 4 * 8192 * 8192 / DRAM
    lengths = [max(2 * US, round(passes * pass_ns)) for _, passes, _ in calls]
    build = CaptureBuilder()
    for start in timed_steps(build, sum(lengths) + 100 * US):
        at = start + 10 * US
        for (name, _, columns), length in zip(calls, lengths, strict=True):
            build.op(name, at - 4 * US, at - 2 * US, **columns)
            build.kernel(at - 3 * US, at, at + length)
            at += length + 5 * US
    advice = found(analyze(build.build()))["fusion"]
    if found_it:
        assert advice.places[0].what == "pow, mean, add, rsqrt, mul x2"
        # x is read and the result is written: two of seven passes are left.
        assert advice.gain_ns == pytest.approx(5 * pass_ns, rel=0.01)
    else:
        # The sums of columns are complete only after all rows.
        assert all("mean" not in place.what for place in advice.places)


@pytest.mark.parametrize(
    ("name", "advised"),
    [
        ("aten::native_layer_norm", False),
        # Random numbers and comparisons take time that no roof of theirs has.
        ("aten::normal_", False),
        ("aten::sort", False),
        ("aten::tanh", True),
    ],
)
def test_what_is_one_kernel_or_has_uncounted_work_is_not_advised_to_move_less(
    name: str, advised: bool
) -> None:
    build = CaptureBuilder()
    # Twice as long as DRAM allows; a sort writes indices of 8 bytes, too.
    length = round(2 * (12 if name == "aten::sort" else 4) * 8192 * 8192 / DRAM)
    columns = {"dims": "[[8192, 8192]]", "types": BF16}
    if name == "aten::native_layer_norm":
        columns = {
            "dims": "[[8192, 8192], [], [8192], [8192], []]",
            "types": '["c10::BFloat16", "ScalarList", "c10::BFloat16", "c10::BFloat16", "Scalar"]',
            "concrete_inputs": '["", "[8192]", "", "", "1e-05"]',
        }
    for start in timed_steps(build, length + 50 * US):
        at = start + 10 * US
        build.op(name, at - 4 * US, at - 2 * US, **columns)
        build.kernel(at - 3 * US, at, at + length)
    analysis = analyze(build.build())
    assert analysis.bottleneck.kind == "memory"
    assert ("below memory roof" in found(analysis)) == advised
    # What it loses is told, and that nothing is known to gain it.
    assert analysis.bottleneck.gain_ns is not None
    assert (analysis.bottleneck.gain_ns > 0) == advised
