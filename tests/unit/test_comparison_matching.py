"""Which kernel of one side is which of the other."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuprof.roofline.comparison.kernel_changes import KernelChange, KernelSide
from gpuprof.roofline.comparison.matching import match_kernels
from gpuprof.roofline.comparison.names import normalised

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel"
SDPA = "cudnn_generated_fort_native_sdpa"


def kernel(name: str, us: float = 100.0, **fields: Any) -> KernelSide:
    defaults: dict[str, Any] = {
        "op": "",
        "shapes": "",
        "phase": "",
        "kind": "kernel",
        "calls": 1.0,
        "bottleneck": "memory",
        "roof": "",
        "roof_fraction": None,
    }
    return KernelSide(name=name, device_ns=us * 1000, **{**defaults, **fields})


def only(base: list[KernelSide], head: list[KernelSide]) -> KernelChange:
    (change,) = match_kernels(base, head)
    return change


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "nvjet_sm90_hsh_192x192_64x4_2x1_v_bz_coopB_TNN",
            "nvjet_sm90_hsh_128x256_64x4_2x1_v_bz_coopA_TNN",
        ),
        ("ampere_sgemm_128x64_tn", "volta_sgemm_32x32_sliced1x4_tn"),
        (
            "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_tn",
            "ampere_fp16_s16816gemm_fp16_256x128_ldg8_f2f_stages_32x4_tn",
        ),
        (
            f"{SDPA}_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0",
            f"{SDPA}_sm100_flash_fprop_wgmma_f16_knob_3_64x64x128_4x1x1_cga1x1x1_kernel0_0",
        ),
        (
            "cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align1",
            "cutlass_90_tensorop_s1688gemm_64x64_32x4_nn_align4",
        ),
        ("triton_poi_fused_mul_silu_2", "triton_poi_fused_mul_silu_11"),
        (
            f"{ELEMENTWISE}<8, at::native::CUDAFunctor_add<float> >(int)",
            f"{ELEMENTWISE}<4, at::native::CUDAFunctor_add<float> >(int)",
        ),
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, 4>(int)",
            "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, (int)4>(int)",
        ),
    ],
)
def test_what_a_tuner_chose_is_not_part_of_the_normalised_name(one: str, other: str) -> None:
    assert one != other
    assert normalised(one) == normalised(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_nn"),
        ("nvjet_sm90_hsh_64x8_TNN", "nvjet_sm90_tst_64x8_TNN"),
        ("triton_poi_fused_mul_silu_2", "triton_poi_fused_mul_tanh_2"),
        ("triton_poi_fused_mul_2", "triton_red_fused_mul_2"),
        (
            f"{ELEMENTWISE}<4, at::native::CUDAFunctor_add<float> >(int)",
            f"{ELEMENTWISE}<4, at::native::AbsFunctor<float> >(int)",
        ),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pinned)"),
        ("gemm_f32", "gemm_f16"),
        ("conv1d", "conv2d"),
    ],
)
def test_what_a_kernel_computes_stays_in_its_normalised_name(one: str, other: str) -> None:
    assert normalised(one) != normalised(other)


def test_a_name_is_never_normalised_away() -> None:
    assert normalised("_128x64") == "_128x64"
    assert normalised("") == ""


def test_the_same_kernel_is_matched_by_its_operators_shapes() -> None:
    small = {"op": "aten::mm", "shapes": "[[8, 8], [8, 8]]"}
    large = {"op": "aten::mm", "shapes": "[[64, 64], [64, 64]]"}

    changes = match_kernels(
        # By time alone they would be swapped.
        [kernel("gemm", 10, **small), kernel("gemm", 20, **large)],
        [kernel("gemm", 20, **small), kernel("gemm", 10, **large)],
    )

    assert sorted(round(change.change_ns) for change in changes) == [-10_000, 10_000]


def test_a_kernel_that_lost_its_operator_is_matched_by_name() -> None:
    change = only([kernel("gemm", op="aten::mm", shapes="[[8, 8]]")], [kernel("gemm", 120)])

    assert (change.match, round(change.change_ns)) == ("name", 20_000)


def test_calls_that_left_a_graph_are_matched_with_those_that_were_launched() -> None:
    replayed = kernel("gemm", 800, calls=8.0)
    rest = kernel("gemm", 600, calls=6.0)
    launched = kernel("gemm", 210, calls=2.0, op="aten::mm", shapes="[8, 8]")
    other = kernel("copy", 5, op="aten::copy_")

    found = match_kernels([replayed], [rest, launched, other])

    assert [(c.match, c.name, c.change_ns) for c in found] == [
        ("name", "gemm", 10_000),
        ("new", "copy", 5_000),
    ]
    assert (found[0].by_count_ns, found[0].side.op) == (0, "aten::mm")
    back = match_kernels([rest, launched], [replayed])
    assert [(c.match, c.change_ns) for c in back] == [("name", -10_000)]


def test_more_replays_beside_new_launches_are_both_told() -> None:
    found = match_kernels(
        [kernel("gemm", 600, calls=6.0)],
        [kernel("gemm", 800, calls=8.0), kernel("gemm", 100, op="aten::mm")],
    )
    assert [(c.match, c.change_ns) for c in found] == [("name", 200_000), ("new", 100_000)]


def test_another_tile_is_a_renaming() -> None:
    change = only([kernel("ampere_sgemm_128x64_tn")], [kernel("ampere_sgemm_64x64_tn", 150)])

    assert (change.match, change.renamed) == ("normalised name", True)
    assert change.name == "ampere_sgemm_128x64_tn -> ampere_sgemm_64x64_tn"


def test_another_kernel_for_the_same_operator_and_shapes_is_a_renaming() -> None:
    work = {"op": "aten::mm", "shapes": "[[8, 8], [8, 8]]"}

    change = only([kernel("gemm_a", **work)], [kernel("splitk_gemm", 300, **work)])

    assert (change.match, change.renamed) == ("operator", True)


def test_kernels_of_other_operators_are_new_and_gone() -> None:
    changes = match_kernels(
        [kernel("a", op="aten::mm", shapes="[[8]]")], [kernel("b", op="aten::relu", shapes="[[8]]")]
    )

    assert {change.match for change in changes} == {"new", "removed"}
    assert sum(change.change_ns for change in changes) == 0


def test_what_is_left_is_matched_by_the_least_difference_of_time() -> None:
    changes = match_kernels([kernel("a", 100), kernel("b", 50)], [kernel("x", 55), kernel("y", 95)])

    assert {(change.name, change.match) for change in changes} == {
        ("a -> y", "time"),
        ("b -> x", "time"),
    }


@pytest.mark.parametrize(
    "other",
    [
        kernel("x", 250),
        kernel("x", 100, calls=2.0),
        kernel("x", 100, kind="memcpy"),
    ],
    ids=["too long", "called more often", "a copy"],
)
def test_a_guess_is_not_made_for_work_that_is_not_alike(other: KernelSide) -> None:
    matches = {change.match for change in match_kernels([kernel("a", 100)], [other])}

    assert matches == {"new", "removed"}


def test_a_fused_kernel_is_set_against_the_kernels_of_its_operators() -> None:
    mul = kernel("elementwise<mul>", 40, op="aten::mul", shapes="[[8]]")
    silu = kernel("elementwise<silu>", 30, op="aten::silu", shapes="[[8]]")
    other = kernel("reduce<sum>", 20, op="aten::sum", shapes="[[8]]")
    fused = kernel("triton_poi_fused_mul_silu_2", 50, op="triton_poi_fused_mul_silu_2")

    gained = {c.match: c for c in match_kernels([mul, silu, other], [fused])}
    lost = {c.match: c for c in match_kernels([fused], [mul, silu])}

    assert round(gained["fused"].change_ns) == -20_000
    assert gained["removed"].name == "reduce<sum>"
    assert round(lost["fused"].change_ns) == 20_000
    assert lost["fused"].head is not None
    assert lost["fused"].head.op == "aten::mul, aten::silu"


def test_fused_kernels_that_share_operators_are_one_change() -> None:
    eager = [
        kernel("norm", 40, op="aten::native_layer_norm", shapes="[[8]]", calls=2.0),
        kernel("add", 30, op="aten::add", shapes="[[8]]", calls=2.0),
    ]
    compiled = [
        kernel("triton_red_fused_native_layer_norm_0", 20),
        kernel("triton_red_fused_add_native_layer_norm_1", 25),
        kernel("triton_poi_fused_add_3", 15),
    ]

    change = only(eager, compiled)

    assert change.match == "fused"
    assert round(change.change_ns) == -10_000


def test_an_operators_name_within_anothers_is_not_that_operator() -> None:
    changes = match_kernels(
        [kernel("a", op="aten::add", shapes="[[8]]", calls=3.0)],
        [kernel("triton_poi_fused_addmm_relu_0")],
    )

    assert {change.match for change in changes} == {"new", "removed"}


def test_several_kernels_of_one_name_are_taken_together_where_their_number_changed() -> None:
    change = only(
        [
            kernel("copy", 10, op="aten::copy_", shapes="[[1]]"),
            kernel("copy", 20, op="aten::copy_", shapes="[[2]]"),
        ],
        [kernel("copy", 45, op="aten::copy_", shapes="[[3]]", calls=3.0)],
    )

    assert change.base is not None
    assert (change.base.calls, change.base.shapes) == (2.0, "")
    assert round(change.change_ns) == 15_000


def test_count_and_mean_are_told_apart() -> None:
    more = only([kernel("a", 100, calls=2.0)], [kernel("a", 150, calls=3.0)])
    longer = only([kernel("a", 100, calls=2.0)], [kernel("a", 150, calls=2.0)])

    assert (round(more.by_count_ns), round(more.by_mean_ns)) == (50_000, 0)
    assert (round(longer.by_count_ns), round(longer.by_mean_ns)) == (0, 50_000)


_kernels = st.lists(
    st.builds(
        lambda name, us, op, shapes, calls: kernel(
            name, us, op=op, shapes=shapes, calls=float(calls)
        ),
        st.sampled_from(
            ["gemm_128x64_tn", "gemm_64x64_tn", "triton_poi_fused_mul_add_3", "copy", "relu"]
        ),
        st.floats(0, 1e6),
        st.sampled_from(["", "aten::mm", "aten::mul", "aten::add"]),
        st.sampled_from(["", "[[8, 8]]", "[[4]]"]),
        st.integers(1, 4),
    ),
    max_size=8,
)


@settings(deadline=None)
@given(_kernels, _kernels)
def test_no_time_is_lost_or_counted_twice(base: list[KernelSide], head: list[KernelSide]) -> None:
    changes = match_kernels(base, head)

    before = sum(change.base.device_ns for change in changes if change.base is not None)
    after = sum(change.head.device_ns for change in changes if change.head is not None)
    assert before == pytest.approx(sum(one.device_ns for one in base))
    assert after == pytest.approx(sum(one.device_ns for one in head))
    for change in changes:
        split = change.by_count_ns + change.by_mean_ns
        assert split == pytest.approx(change.change_ns, abs=1e-3)


@settings(deadline=None)
@given(_kernels)
def test_nothing_changed_against_itself(kernels: list[KernelSide]) -> None:
    changes = match_kernels(kernels, kernels)

    assert {change.match for change in changes} <= {"name"}
    assert all(change.change_ns == 0 for change in changes)


@pytest.mark.parametrize("number", [8, 2500])
def test_kernels_without_operators_are_paired_by_time_however_many_they_are(number: int) -> None:
    """Of thousands no matrix of all pairs is made, which would fill gigabytes."""
    base = [kernel(f"left {n}", us=100 * 1.001**n) for n in range(number)]
    head = [kernel(f"right {n}", us=101 * 1.001**n) for n in reversed(range(number))]

    changes = match_kernels(base, head)

    assert {change.match for change in changes} == {"time"}
    assert len(changes) == number
    for change in changes:
        assert change.base is not None
        assert change.head is not None
        assert change.head.device_ns == pytest.approx(1.01 * change.base.device_ns)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=6))
def test_no_pairing_of_kernels_of_one_name_differs_by_less(times: list[tuple[int, int]]) -> None:
    base, head = (
        [kernel("copy", us, op="aten::copy_", shapes="[[1]]") for us in side]
        for side in zip(*times, strict=True)
    )

    found = sum(abs(change.change_ns) for change in match_kernels(base, head))

    least = min(
        sum(abs(one.device_ns - other.device_ns) for one, other in zip(base, order, strict=True))
        for order in permutations(head)
    )
    assert found == pytest.approx(least)
