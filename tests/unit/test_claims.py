"""Verdicts on claims, each against arithmetic done by hand."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.reports.bench.claims import explain, print_claims
from gpuprof.roofline.bench.results import BenchReport, CaseResult, Method
from gpuprof.roofline.claims.claim import Claim, ClaimTable
from gpuprof.roofline.claims.convolution_shape import parse_convolution
from gpuprof.roofline.claims.judge import ClaimJudgement, judge
from gpuprof.roofline.claims.table import load_table, shipped_tables
from gpuprof.roofline.machine.devices import rows_with_words

H100 = Device(
    index=0,
    kind="cuda",
    name="NVIDIA H100 80GB HBM3",
    total_memory_bytes=85_029_158_912,
    multiprocessors=132,
)


def claim(**fields: Any) -> Claim:
    return Claim(**{"name": "it", "gpu": "H100 SXM", "dtype": "fp16", **fields})


def verdicts(*claims: Claim) -> list[str]:
    return [one.verdict for one in judge(ClaimTable(source="", claim=claims))]


def only(*claims: Claim, measured: BenchReport | None = None) -> ClaimJudgement:
    return judge(ClaimTable(source="", claim=claims), measured)[-1]


def gemm(size: str, **fields: Any) -> Claim:
    return claim(kind="gemm", size=size, **fields)


def test_a_gemm_below_its_floor_is_beyond_the_hardware() -> None:
    # 2 x 2048 x 11008 x 4096 = 184 683 593 728 FLOP; / 989.4e12 = 186.66 us.
    one = only(gemm("2048x11008x4096", time_us=40))
    assert one.verdict == "beyond the hardware"
    assert one.floor is not None
    assert one.floor.ns == pytest.approx(186_662, rel=1e-4)
    (line,) = explain(one)
    assert "2 x 2048 x 11008 x 4096 = 185 GFLOP; at 989 TFLOP/s" in line
    assert "at least 187 µs; claimed 40 µs, which is 4.62 PFLOP/s, 467% of the roof" in line


def test_a_gemm_above_its_floor_is_possible() -> None:
    # 2 x 16384 x 8192 x 8192 = 2.199e12 FLOP at 300e12 = 7.330 ms; at 312e12 7.048 ms.
    one = only(gemm("16384x8192x8192", gpu="A100", tflops=300))
    assert one.verdict == "possible"
    assert one.claimed_ns == pytest.approx(7_330_077, rel=1e-4)
    assert one.floor is not None
    assert one.floor.ns == pytest.approx(7_048_151, rel=1e-4)


def test_a_gemm_bound_by_memory_has_the_memory_as_its_floor() -> None:
    # 1 x 4096 x 4096 fp16: (4096 + 4096 x 4096 + 4096) x 2 B = 33.57 MB / 3.35e12 = 10.02 us;
    # its 33.6 MFLOP need 0.034 us.
    one = only(gemm("1x4096x4096", time_us=5))
    assert one.verdict == "beyond the hardware"
    assert one.floor is not None
    assert one.floor.ns == pytest.approx(10_021, rel=1e-3)
    assert one.floor.ceiling.startswith("DRAM")


def test_causal_attention_counts_the_pairs_that_its_mask_keeps() -> None:
    # 4 x 32 x 128 x 2048 x 2049 / 2 = 34.38e9 FLOP / 989.4e12 = 34.7 us; in full 69.5 us.
    size = {"kind": "attention", "size": "1x32x2048x128"}
    causal, full = only(claim(**size, causal=True, time_us=40)), only(claim(**size, time_us=40))
    assert (causal.verdict, full.verdict) == ("possible", "beyond the hardware")
    assert causal.floor is not None
    assert causal.floor.ns == pytest.approx(34_745, rel=1e-3)


def test_a_claim_within_rounding_of_its_floor_is_let_pass() -> None:
    # 4096^3: 138.9 us at 989.4 TFLOP/s. 135 us is 2.9 % below, 134 us is 3.7 % below.
    assert verdicts(gemm("4096x4096x4096", time_us=135)) == ["possible"]
    assert verdicts(gemm("4096x4096x4096", time_us=134)) == ["beyond the hardware"]


def test_an_all_reduce_is_compared_with_the_link_in_one_direction() -> None:
    # 128e6 x 2 x 7/8 = 224 MB / 450e9 = 497.8 us. With the switch adding: 128e6 / 450e9 = 284 us.
    message = {"kind": "all-reduce", "size": "128MB", "ranks": 8}
    assert verdicts(claim(**message, bus_gb_per_s=440)) == ["possible"]
    one = only(claim(**message, bus_gb_per_s=660))
    assert one.verdict == "only with in-network reduction"
    assert one.claimed_ns == pytest.approx(339_394, rel=1e-4)
    # 284 us would be 787 GB/s.
    assert verdicts(claim(**message, bus_gb_per_s=800)) == ["beyond the hardware"]


def test_decoding_a_token_reads_every_weight_once() -> None:
    # 6.738e9 x 2 B / 3.35e12 B/s = 4.02 ms.
    weights = {"kind": "weights", "parameters": 6_738_415_616}
    assert verdicts(claim(**weights, time_us=10_000)) == ["possible"]
    one = only(claim(**weights, time_us=3_000))
    assert one.verdict == "beyond the hardware"
    assert one.floor is not None
    assert one.floor.ns == pytest.approx(4_022_935, rel=1e-4)


def test_two_claims_of_the_same_work_contradict_each_other() -> None:
    ring = {"kind": "all-reduce", "size": "4.7MB", "ranks": 8}
    first = claim(name="a", **ring, time_us=20)
    second = claim(name="b", **ring, same_as="a", time_us=160)
    assert verdicts(first, second) == ["contradicts another claim"] * 2
    agreeing = claim(name="b", **ring, same_as="a", time_us=20.5)
    assert verdicts(first, agreeing) == ["possible"] * 2
    one = only(first, second)
    assert "claimed 160 µs; by a it is 20.0 µs: a factor of 8.00" in list(explain(one))


def test_the_parts_of_a_sum_must_add_up() -> None:
    parts = (
        gemm("4096x4096x4096", name="a", time_us=150),
        gemm("4096x4096x4096", name="b", time_us=200),
    )
    total = {"kind": "sum", "parts": ("a", "b"), "times": 32}
    # 32 x 350 us = 11.2 ms; the work of both, 32 x 2 x 138.9 us = 8.89 ms, bounds it too.
    assert verdicts(*parts, claim(**total, time_us=11_000))[-1] == "possible"
    assert verdicts(*parts, claim(**total, time_us=15_000))[-1] == "contradicts another claim"
    one = only(*parts, claim(**total, time_us=8_000))
    assert one.verdict == "beyond the hardware"
    assert one.floor is not None
    assert one.floor.ns == pytest.approx(32 * 2 * 138_913, rel=1e-4)


def test_tokens_a_second_follow_from_the_time() -> None:
    prefill = gemm("4096x4096x4096", name="prefill", time_us=11_000)
    rate = {"kind": "throughput", "tokens": 2048, "of": "prefill"}
    # 2048 / 11 ms = 186 182 a second.
    one = only(prefill, claim(**rate, tokens_per_s=187))
    assert one.verdict == "contradicts another claim"
    assert one.conflicts[0].implied == pytest.approx(186_182, rel=1e-5)
    assert verdicts(prefill, claim(**rate, tokens_per_s=186_000)) == ["possible"] * 2


def test_a_share_of_the_peak_follows_from_the_time() -> None:
    # 137.4e9 FLOP / 0.5 ms = 274.9 TFLOP/s, 27.8 % of 989.4.
    assert verdicts(gemm("4096x4096x4096", time_us=500, mfu_percent=27.8)) == ["possible"]
    assert verdicts(gemm("4096x4096x4096", time_us=500, mfu_percent=55.6)) == [
        "contradicts another claim"
    ]


def test_without_a_size_only_ratios_are_told() -> None:
    one = only(
        claim(name="torch", kind="unsized", time_ms=1.1),
        claim(name="naive", kind="unsized", of="torch", time_s=8.1),
    )
    assert one.verdict == "not checkable"
    # 8.1 s / 1.1 ms = 7363.6. The figure stays in the unit that it is claimed in.
    assert list(explain(one)) == [
        "its size is not stated, so nothing can be counted",
        "claimed 8.1 s, 7364 times torch's time",
    ]


def test_a_time_that_is_much_too_long_is_possible() -> None:
    # 138.9 us at the peak; an hour is slow, not impossible.
    assert verdicts(gemm("4096x4096x4096", time_s=3600)) == ["possible"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"kind": "gemm", "time_us": 1}, "its size is not stated"),
        ({"kind": "gemm", "gpu": "", "time_us": 1}, "its GPU and size are not stated"),
        ({"kind": "gemm", "size": "1x2x3", "gpu": "Z9", "time_us": 1}, "Z9 is not in the device"),
        (
            {"kind": "gemm", "size": "8x8x8", "gpu": "A100", "dtype": "fp8", "time_us": 1},
            "no fp8 peak of A100 is in the device table",
        ),
        ({"kind": "gemm", "size": "1x2x3"}, "its time or rate is not stated"),
        ({"kind": "gemm", "size": "1x2x3", "mfu_percent": 3}, "its time or rate is not stated"),
        ({"kind": "all-reduce", "size": "1MB", "time_us": 1}, "its ranks are not stated"),
        (
            {"kind": "all-reduce", "size": "1MB", "gpu": ""},
            "its GPU, ranks and time or rate are not stated",
        ),
        ({"kind": "all-reduce", "parameters": 7, "dtype": "", "ranks": 2, "time_us": 1}, "dtype"),
        ({"kind": "weights", "time_us": 1}, "its parameters are not stated"),
        ({"kind": "training", "size": "32x2048", "time_ms": 236}, "its parameters and ranks are"),
        ({"kind": "convolution", "time_us": 1}, "its size is not stated"),
        ({"kind": "throughput"}, "its tokens, claim of the time and tokens a second are not"),
        ({"kind": "sum", "time_us": 1}, "its parts are not stated"),
    ],
)
def test_a_claim_that_says_too_little_is_not_checkable(fields: dict[str, Any], reason: str) -> None:
    one = only(claim(**fields))
    assert one.verdict == "not checkable"
    assert reason in one.reason


def test_without_a_gpu_what_no_gpu_can_do_is_still_told() -> None:
    # 7e9 x 4 B x 2 x 7/8 = 49 GB over 900 GB/s, the fastest link of the table: 54.44 ms. With the
    # switch adding 28 GB / 900 GB/s = 31.1 ms.
    gradients = {"kind": "all-reduce", "gpu": "", "parameters": 7 * 10**9, "ranks": 8}
    one = only(claim(**gradients, dtype="fp32", time_ms=0.6))
    assert one.verdict == "beyond the hardware"
    assert one.work is not None
    assert one.work.bus_bytes == 49_000_000_000
    assert one.floor is not None
    assert one.floor.ns == pytest.approx(54_444_444)
    (line,) = explain(one)
    assert "7 G parameters x 4 B x 2 x 7/8 = 49.0 GB; at 900 GB/s" in line
    assert "fastest GPU of the device table: at least 54.4 ms; claimed 0.6 ms" in line
    # In fp16 half of it, 27.2 ms; 28 ms is possible where the link is as fast.
    open_one = only(claim(**gradients, dtype="fp16", time_ms=28))
    assert open_one.verdict == "not checkable"
    assert open_one.reason.startswith("its GPU is not stated; the device table has ")


def test_without_a_dtype_each_is_tried() -> None:
    # (4096 + 4096 x 32000 + 32000) x 2 B = 262.2 MB in 60 us is 4.37 TB/s, more than the 3.35 TB/s
    # of an H100 SXM; with 1 B an item 2.19 TB/s.
    head = {"kind": "gemm", "size": "1x32000x4096", "dtype": ""}
    one = only(claim(**head, time_us=60))
    assert one.verdict == "not checkable"
    assert one.reason == (
        "its dtype is not stated; the device table has 1 H100 SXM, of which 1 could in fp8 and int8"
    )
    # 131.1 MB / 3.35 TB/s = 39.1 us at the least.
    assert verdicts(claim(**head, time_us=37)) == ["beyond the hardware"]
    assert verdicts(claim(**{**head, "dtype": "fp16"}, time_us=60)) == ["beyond the hardware"]


def test_a_convolution_counts_its_windows_and_moves_what_they_touch() -> None:
    # ResNet's 3x3: P = Q = 56. 2 x 32 x 64 x 56 x 56 x 64 x 9 = 7 398 752 256 FLOP / 989.4e12
    # = 7.48 us. x and y 32 x 64 x 56 x 56 = 6 422 528 each, w 64 x 64 x 9 = 36 864:
    # 12 881 920 x 2 B = 25 763 840 B / 3.35e12 = 7.691 us, which binds.
    one = only(claim(kind="convolution", size="32x64x56x56-64x3x3-p1", time_us=5))
    assert one.verdict == "beyond the hardware"
    assert one.work is not None
    assert one.work.flop_count == 7_398_752_256
    assert one.work.bytes_moved == 25_763_840
    assert one.work.sum == "2 x 32 x 64 x 56 x 56 x 64 x 3 x 3"
    assert one.floor is not None
    assert one.floor.ns == pytest.approx(7_690.7, rel=1e-4)
    # 256 channels at 28 x 28: 29 595 009 024 FLOP / 30 us = 986.5 TFLOP/s, just below the peak.
    assert verdicts(claim(kind="convolution", size="32x256x28x28-256x3x3-p1", time_us=30)) == [
        "possible"
    ]


@pytest.mark.parametrize(
    ("size", "flops", "elements"),
    [
        # Stride 2 and padding 3: P = (224 + 6 - 7) // 2 + 1 = 112. FLOPs 2 x 64 x 112^2 x 3 x 49;
        # x 3 x 224^2 = 150 528, w 64 x 3 x 49 = 9 408, y 64 x 112^2 = 802 816.
        ("1x3x224x224-64x7x7-s2-p3", 236_027_904, 962_752),
        # Depthwise: 2 x 32 x 10 x 10 x 1 x 9; x 32 x 100, w 32 x 9, y 32 x 100.
        ("1x32x10x10-32x3x3-p1-g32", 57_600, 6_688),
        # 1x1 with stride 2 reads every other row and column: x 4 x 3 x 3, w 8 x 4, y 8 x 3 x 3.
        ("1x4x6x6-8x1x1-s2", 576, 36 + 32 + 72),
        # Dilation 2 covers 5 rows: P = (7 - 5) / 1 + 1 = 3; all 7 rows are met.
        ("1x1x7x7-1x3x3-d2", 162, 49 + 9 + 9),
    ],
)
def test_convolutions_with_options(size: str, flops: int, elements: int) -> None:
    one = only(claim(kind="convolution", size=size, time_us=1000))
    assert one.work is not None
    assert (one.work.flop_count, one.work.bytes_moved) == (flops, 2 * elements)


@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("padding", [0, 1, 3])
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_rows_that_windows_touch(kernel: int, stride: int, padding: int, dilation: int) -> None:
    for size in range(13, 17):
        options = f"-s{stride}-p{padding}-d{dilation}"
        shape = parse_convolution(f"1x1x{size}x1-1x{kernel}x1{options}")
        met = {
            output * stride + tap * dilation - padding
            for output in range(shape.p)
            for tap in range(kernel)
        }
        column = parse_convolution(f"1x1x1x1-1x1x1{options}").touched_elements
        assert shape.touched_elements == column * len(met & set(range(size)))


def test_a_training_step_is_shared_by_its_gpus() -> None:
    # 6 x 7e9 x 32 x 2048 / 8 = 344.064e12 FLOP a GPU; / 989.4e12 = 347.75 ms.
    step = {"kind": "training", "size": "32x2048", "parameters": 7 * 10**9, "ranks": 8}
    one = only(claim(**step, time_ms=236))
    assert one.verdict == "beyond the hardware"
    assert one.work is not None
    assert one.work.flop_count == 344_064_000_000_000
    assert one.floor is not None
    assert one.floor.ns == pytest.approx(347_750_151, rel=1e-6)
    assert "6 x 7 G parameters x 32 x 2048 tokens / 8 GPUs = 344 TFLOP" in next(explain(one))
    assert verdicts(claim(**step, time_ms=695, mfu_percent=50)) == ["possible"]


def test_two_figures_of_one_claim_must_agree() -> None:
    # 137.4e9 FLOP in 500 us are 274.9 TFLOP/s.
    assert verdicts(gemm("4096x4096x4096", time_us=500, tflops=275)) == ["possible"]
    one = only(gemm("4096x4096x4096", time_us=500, tflops=550))
    assert one.verdict == "contradicts another claim"
    assert "claimed 500 µs; by its own rate it is 250 µs: a factor of 2.00" in list(explain(one))


def test_mfu_is_a_share_of_the_peak_also_where_the_memory_binds() -> None:
    # 1 x 4096 x 4096: 33 554 432 FLOP in 20 us are 1.678 TFLOP/s, 0.1696 % of 989.4.
    one = only(gemm("1x4096x4096", time_us=20, mfu_percent=0.17))
    assert one.verdict == "possible"
    assert one.conflicts[0].implied == pytest.approx(0.0016957, rel=1e-3)


def test_a_sum_with_communication_is_bound_by_the_longer_of_both() -> None:
    # A GEMM of 138.9 us and a message of 224 MB / 450 GB/s = 497.8 us.
    parts = (
        gemm("4096x4096x4096", name="a", time_us=150),
        claim(name="b", kind="all-reduce", size="128MB", ranks=8, time_us=500),
    )
    one = only(*parts, claim(kind="sum", parts=("a", "b"), time_us=650))
    assert one.verdict == "possible"
    assert one.floor is not None
    assert (one.floor.resource, round(one.floor.ns)) == ("link", 497_778)


def test_a_name_without_a_variant_means_the_fastest_one() -> None:
    assert {row.name for row in rows_with_words("H100")} >= {
        "NVIDIA H100 SXM5 80GB",
        "NVIDIA H100 PCIe 80GB",
        "NVIDIA H100 NVL",
    }
    assert [row.name for row in rows_with_words("H100 SXM")] == ["NVIDIA H100 SXM5 80GB"]
    # 33.57 MB at the 3.9 TB/s of the NVL: 8.61 us.
    one = only(gemm("1x4096x4096", gpu="H100", time_us=9))
    assert one.verdict == "possible"
    assert one.floor is not None
    assert one.floor.ns == pytest.approx(8_608, rel=1e-3)


def report(*cases: CaseResult, device: Device = H100, ranks: int = 1) -> BenchReport:
    return BenchReport(
        tool_version="0",
        created_ns=0,
        device=device,
        fingerprint=Fingerprint(),
        ranks=ranks,
        method=Method(
            clock="CUDA events",
            flushed_bytes=1,
            confidence=0.95,
            precision=0.005,
            budget_s=1,
            seed=0,
        ),
        cases=cases,
    )


def case(family: str, size: str, time_ns: int, version: str = "x", dtype: str = "fp16") -> Any:
    return CaseResult(family=family, version=version, size=size, dtype=dtype, median_ns=time_ns)


def test_the_fastest_version_measured_stands_beside_the_claim() -> None:
    size = "2048x11008x4096"
    bench = report(
        case("gemm", size, 300_000),
        case("gemm", size, 260_000, "cublas"),
        case("gemm", "1x1x1", 10),
        case("gemm", size, 100, dtype="bf16"),
    )
    one = only(gemm(size, time_us=40), measured=bench)
    assert list(explain(one))[-1] == "measured: 260.0 µs by gemm/cublas fp16, 6.50 times the claim"


def printed(measured: BenchReport, *claims: Claim) -> str:
    text = io.StringIO()
    judgements = judge(ClaimTable(source="s", claim=claims), measured)
    print_claims("s", judgements, Console(file=text, width=1000), measured=measured)
    return text.getvalue()


def test_that_nothing_measured_matches_is_said_with_the_reason() -> None:
    wanted = gemm("8x8x8", time_us=40)
    cpu = report(case("gemm", "8x8x8", 100), device=Device(index=0, kind="cpu", name="A CPU"))
    assert only(wanted, measured=cpu).measured is None
    nothing = "Nothing measured matches a claim"
    assert f"{nothing}: it was measured on A CPU, which none is about." in printed(cpu, wanted)
    other = gemm("8x8x8", time_us=40, gpu="A100")
    here = report(case("gemm", "8x8x8", 100))
    assert f"{nothing}: it was measured on {H100.name}, which none" in printed(here, other)
    sizes = f"{nothing}: no claim is of a size that ran on {H100.name}."
    assert sizes in printed(here, gemm("9x9x9", time_us=40))
    # A claim that names no GPU is about none.
    assert nothing in printed(here, gemm("8x8x8", time_us=40, gpu=""))
    assert nothing not in printed(here, other, wanted)


def test_a_measured_convolution_is_found_however_its_size_is_written() -> None:
    wanted = claim(kind="convolution", size="2x8x9x9-8x3x3-p1-s2", time_us=40)
    bench = report(
        case("convolution", "2x8x9x9-8x3x3-s2-p1+bn-relu", 10_000),
        case("convolution", "written by a later version", 10_000),
        case("convolution", "2x8x9x9-8x3x3-s2-p1", 20_000),
    )
    found = only(wanted, measured=bench).measured
    assert found is not None
    assert found.time_ns == 20_000


def test_measured_attention_and_all_reduce_are_found_by_their_sizes() -> None:
    attention = claim(kind="attention", size="1x32x2048x128", causal=True, time_us=40)
    bench = report(case("attention", "causal-forward:1x32x32x2048x128", 60_000))
    found = only(attention, measured=bench).measured
    assert found is not None
    assert found.time_ns == 60_000
    reduce = claim(kind="all-reduce", size="1MB", ranks=4, time_us=40)
    cases = (case("collectives", "all-reduce:1000kB", 30_000, dtype="bf16"),)
    found = only(reduce, measured=report(*cases, ranks=4)).measured
    assert found is not None
    assert found.time_ns == 30_000
    assert only(reduce, measured=report(*cases, ranks=8)).measured is None


def test_the_shipped_table_holds_what_no_gpu_could_meet() -> None:
    assert shipped_tables() == ("public-articles",)
    judged = judge(load_table("public-articles"))
    found: dict[str, list[str]] = {}
    for one in judged:
        found.setdefault(one.verdict, []).append(one.claim.name)
    assert found["beyond the hardware"] == [
        "Llama block QKV",
        "Llama block attention",
        "Llama block O",
        "Llama block gate",
        "Llama block up",
        "Llama block down",
        "Llama block",
        "Llama prefill of 32 layers",
        "gradients of 7 B parameters",
    ]
    assert found["contradicts another claim"] == [
        "Llama prefill throughput",
        "ring all-reduce 4.7 MB, first place",
        "ring all-reduce 4.7 MB, second place",
    ]
    assert found["only with in-network reduction"] == ["all-reduce 128 MB, 8 GPUs"]
    assert found["not checkable"][:4] == [
        "LM head",
        "training step, B=32, S=2048",
        "all-reduce 16 MB",
        "all-reduce 1 GB",
    ]
    assert len(found["not checkable"]) == 13
    assert len(found["possible"]) == len(judged) - 26


def test_the_shipped_figures_stay_in_the_unit_of_the_articles() -> None:
    stated = {one.name: one.stated_time for one in load_table("public-articles").claim}
    assert stated["GELU naive"] == "8.1 s"
    assert stated["softmax naive"] == "3.7 s"
    assert stated["GELU Triton"] == "1.848 ms"
    assert stated["LM head"] == "60 µs"
    assert stated["training step, B=32, S=2048"] == "236 ms"
    assert stated["gradients of 7 B parameters"] == "0.6 ms"


GATE = '[[claim]]\nname = "gate"\ngpu = "A100"\n'
GEMM = f'{GATE}kind = "gemm"\n'
RING = f'{GATE}kind = "all-reduce"\n'


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("source = 1", "source: Expected `str`"),
        ("claims = 1", "unknown field `claims`"),
        ("source = ", "nvalid"),
        (f"a = {'[' * 5000}", "recursion"),
        ("claim = [1]", "claim 1: Expected `object`, got `int`"),
        ('[[claim]]\nname = "gate"', "claim 1 (gate): Object missing required field `kind`"),
        (f'{GATE}kind = "gem"', "claim 1 (gate), kind: Invalid enum value 'gem'"),
        (f"{GEMM}time_us = 'x'", "claim 1 (gate), time_us: Expected `float | null`, got `str`"),
        (f"{GEMM}time_us = 0", "claim 1 (gate), time_us: Expected `float` >= "),
        (f"{GEMM}time_us = nan", "claim 1 (gate), time_us: Expected `float` >= "),
        (f"{GEMM}time_us = inf", "claim 1 (gate), time_us: Expected `float` <= "),
        (f"{GEMM}time_us = 1\ntime_ms = 1", "claim 1 (gate), time_ms: time_us is stated too"),
        (f"{GEMM}tme_us = 1", "claim 1 (gate): Object contains unknown field `tme_us`"),
        (f"{GEMM}ranks = 8", "claim 1 (gate), ranks: gemm has no such key, but size, dtype, "),
        (f"{GEMM}bus_gb_per_s = 8", "claim 1 (gate), bus_gb_per_s: gemm has no such key"),
        (f'{GEMM}size = "1x2"', "claim 1 (gate), size: '1x2' is not MxNxK"),
        (f'{GEMM}size = "0x2x3"', "claim 1 (gate), size: '0x2x3' is not MxNxK"),
        (f'{GEMM}size = "{"9" * 400}x2x3"', "is not MxNxK"),
        (f'{GEMM}dtype = "fp17"', "claim 1 (gate), dtype: 'fp17' is none of fp64, fp32"),
        (f'{RING}size = "big"', "claim 1 (gate), size: 'big' is no number of bytes"),
        (f'{RING}size = "{"9" * 400}"', "is more bytes than any memory has"),
        (f'{RING}size = "0MB"', "claim 1 (gate), size: a message has at least 1 byte"),
        (f"{GEMM.replace('A100', ' ')}", "claim 1 (gate), gpu: ' ' names no GPU"),
        (f"{RING}ranks = 1", "claim 1 (gate), ranks: an all-reduce needs at least 2"),
        (f'{RING}size = "1MB"\nparameters = 7', "claim 1 (gate), parameters: the size of"),
        (f'{GATE}kind = "training"\nsize = "32"', "claim 1 (gate), size: '32' is not BxS"),
        (
            f'{GATE}kind = "convolution"\nsize = "1x2x3"',
            "claim 1 (gate), size: '1x2x3' is no convolution: expected NxCxHxW-KxRxS",
        ),
        (
            f'{GATE}kind = "convolution"\nsize = "1x3x8x8-4x3x3-g2"',
            "claim 1 (gate), size: '1x3x8x8-4x3x3-g2': C and K must be multiples of the groups",
        ),
        (f'{GATE}kind = "sum"\nparts = ["b"]', "claim 1 (gate), parts: no claim 'b' stands before"),
        (f'{GEMM}same_as = "gate"', "claim 1 (gate), same_as: no claim 'gate' stands before it"),
        (f"{GEMM}{GEMM}", "claim 1 (gate), name: two claims have this name"),
        ('[[claim]]\nname = "a\\u001b"\nkind = 1', "claim 1 ('a\\x1b'), kind: Expected `str`"),
    ],
)
def test_what_is_wrong_with_a_table_is_one_line_with_its_place(
    tmp_path: Path, content: str, problem: str
) -> None:
    file = tmp_path / "claims.toml"
    file.write_text(content if content.startswith("source") else f'source = ""\n{content}')
    with pytest.raises(CaptureError) as caught:
        load_table(str(file))
    text = str(caught.value)
    assert text.startswith(str(file))
    assert problem in text
    assert text.isprintable()


def test_sums_of_sums_do_not_grow_beyond_what_can_be_printed() -> None:
    claims = [gemm("4096x4096x4096", name="0", time_us=500)]
    for level in range(1, 40):
        below = (str(level - 1),)
        claims.append(claim(name=str(level), kind="sum", parts=below, times=10**18, time_s=1))
    judged = judge(ClaimTable(source="", claim=tuple(claims)))
    assert all(list(explain(one)) for one in judged)


def test_a_missing_table_names_the_shipped_ones(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="public-articles"):
        load_table(str(tmp_path / "none.toml"))
