"""Figures and names as people read them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuprof.reports import formatting


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12345.6, "12346"), (9.999, "10.0"), (0.01234, "0.0123"), (-2.5, "-2.50")],
)
def test_three_digits_are_kept_and_whole_numbers_are_not_cut(value: float, text: str) -> None:
    assert formatting.significant(value) == text


@given(st.floats(min_value=1e-4, max_value=1e18))
def test_a_printed_value_is_within_half_of_its_last_digit(value: float) -> None:
    assert math.isclose(float(formatting.significant(value)), value, rel_tol=0.0051)


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (989.4e12, "989 TFLOP/s"),
        (1978.9e12, "1.98 PFLOP/s"),
        (999.9e9, "1.00 TFLOP/s"),
        (12.0, "12.0 FLOP/s"),
        (None, "-"),
    ],
)
def test_a_rate_has_a_decimal_prefix(rate: float | None, text: str) -> None:
    assert formatting.flops_rate(rate) == text


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(12, "12.0 ns"), (999.9, "1.00 µs"), (1_450_000, "1.45 ms"), (61e9, "61.0 s"), (None, "-")],
)
def test_a_duration_has_the_unit_that_suits_it(nanoseconds: float | None, text: str) -> None:
    assert formatting.duration(nanoseconds) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.4321, "43.2%"), (0.0002, "<0.1%"), (0.0, "0.0%"), (1.124, "112%"), (None, "-")],
)
def test_a_share_is_never_clipped_and_zero_is_not_unknown(
    fraction: float | None, text: str
) -> None:
    assert formatting.percent(fraction) == text


def test_a_time_below_a_microsecond_is_not_shown_as_nothing() -> None:
    assert formatting.milliseconds(300) == "<0.001"
    assert formatting.milliseconds(0) == "0.000"


def test_thousands_stand_apart_and_do_not_wrap() -> None:
    assert formatting.count(1234567) == "1\N{NO-BREAK SPACE}234\N{NO-BREAK SPACE}567"


def test_control_and_direction_characters_become_visible() -> None:
    assert formatting.printable("a\x1b[31mb\n\u202ec") == r"a\x1b[31mb\n\u202ec"
    assert formatting.printable("größe µ") == "größe µ"
    assert formatting.printable("\ud800") == r"\ud800"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::(anonymous namespace)::fused<at::X<4>, (at::MODE)1>(at::X<4>, int)",
            "at::native::fused",
        ),
        ("sm90_xmma_gemm_bf16", "sm90_xmma_gemm_bf16"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("void a::b<c", "void a::b<c"),
        # As c++filt reads them: vecAdd(float*, float*, float*, int), and a template of ATen.
        ("_Z6vecAddPfS_S_i", "vecAdd"),
        ("_ZN2at6native5fusedILi4EfEEviT0_", "at::native::fused"),
        ("_Zbroken", "_Zbroken"),
    ],
)
def test_template_arguments_go_and_other_names_stay(name: str, short: str) -> None:
    assert formatting.short_name(name) == short


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
            "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
        ),
        ("void at::native::(anonymous namespace)::multi_kernel<Add<4>>(Add<4>)", "multi_kernel"),
        ("void at::native::<unnamed>::multi_kernel<Add<4>>(Add<4>)", "multi_kernel"),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm>(Params)",
            "cutlass_80_tensorop_s1688gemm",
        ),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD"),
        ("<odd>", "<odd>"),
    ],
)
def test_a_kernel_is_called_by_its_own_name(name: str, short: str) -> None:
    assert formatting.kernel_name(name) == short


def test_the_space_between_thousands_is_printed_as_it_is() -> None:
    assert formatting.printable(formatting.count(2835)) == "2\N{NO-BREAK SPACE}835"


def test_one_of_a_kind_has_no_plural() -> None:
    assert [formatting.counted(n, "kernel") for n in (0, 1, 2)] == [
        "0 kernels",
        "1 kernel",
        "2 kernels",
    ]
    assert formatting.counted(2, "process", "processes") == "2 processes"
