"""Verdicts on claims, each against arithmetic done by hand."""

from pathlib import Path
from typing import Any

import pytest

from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.reports.bench.claims import explain
from gpuprof.roofline.bench.results import BenchReport, CaseResult, Method
from gpuprof.roofline.claims.judge import Judgement, judge
from gpuprof.roofline.claims.table import Claim, ClaimTable, load_table, shipped_tables
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


def only(*claims: Claim, measured: BenchReport | None = None) -> Judgement:
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
    assert "at least 187 µs; claimed 40.0 µs, which is 4.62 PFLOP/s, 467% of the roof" in line


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


def test_an_all_reduce_is_held_against_the_link_in_one_direction() -> None:
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
        claim(name="torch", kind="unsized", time_us=1100),
        claim(name="naive", kind="unsized", of="torch", time_us=8100),
    )
    assert one.verdict == "not checkable"
    assert list(explain(one)) == [
        "its size is not stated, so nothing can be counted",
        "7.36 times torch's time",
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"kind": "gemm", "size": "1x2", "time_us": 1}, "expected MxNxK"),
        ({"kind": "gemm", "size": "1x2x3", "dtype": "fp17", "time_us": 1}, "dtype is 'fp17'"),
        ({"kind": "gemm", "size": "1x2x3", "gpu": "Z9", "time_us": 1}, "Z9 is not in the device"),
        ({"kind": "gemm", "size": "8x8x8", "gpu": "A100", "dtype": "fp8", "time_us": 1}, "fp8"),
        ({"kind": "gemm", "size": "1x2x3"}, "it claims no time or rate"),
        ({"kind": "all-reduce", "size": "1MB", "time_us": 1}, "needs ranks"),
        ({"kind": "all-reduce", "size": "big", "ranks": 2, "time_us": 1}, "no number of bytes"),
        ({"kind": "weights", "time_us": 1}, "need parameters"),
    ],
)
def test_a_claim_that_says_too_little_is_not_checkable(fields: dict[str, Any], reason: str) -> None:
    one = only(claim(**fields))
    assert one.verdict == "not checkable"
    assert reason in one.reason


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


def test_a_bench_of_another_gpu_says_nothing() -> None:
    bench = report(case("gemm", "8x8x8", 100), device=Device(index=0, kind="cpu", name="A CPU"))
    assert only(gemm("8x8x8", time_us=40), measured=bench).measured is None
    assert only(gemm("8x8x8", time_us=40, gpu="A100"), measured=report()).measured is None


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
    ]
    assert found["contradicts another claim"] == [
        "Llama prefill throughput",
        "ring all-reduce 4.7 MB, first place",
        "ring all-reduce 4.7 MB, second place",
    ]
    assert found["only with in-network reduction"] == ["all-reduce 128 MB, 8 GPUs"]
    assert len(found["not checkable"]) == 9
    assert len(found["possible"]) == len(judged) - 21


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("source = 1", "Expected `str`"),
        ('source = ""\n[[claim]]\nname = "a"\n', "missing required field"),
        ('source = ""\nclaims = []\nclaim = []', "unknown field"),
        ("source = ", "nvalid"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "claims.toml"
    file.write_text(content)
    with pytest.raises(CaptureError) as caught:
        load_table(str(file))
    assert problem in str(caught.value)


def test_a_claim_refers_only_to_claims_before_it(tmp_path: Path) -> None:
    file = tmp_path / "claims.toml"
    one = '[[claim]]\nname = "a"\ngpu = "A100"\nkind = "sum"\nparts = ["b"]\n'
    file.write_text(f'source = ""\n{one}')
    with pytest.raises(CaptureError, match=r"claim 1 \(a\): no claim 'b' stands before it"):
        load_table(str(file))
    file.write_text(f'source = ""\n{one.replace("b", "a")}{one}')
    with pytest.raises(CaptureError, match="two claims have this name"):
        load_table(str(file))


def test_a_missing_table_names_the_shipped_ones(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="public-articles"):
        load_table(str(tmp_path / "none.toml"))
