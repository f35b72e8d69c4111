"""Ceilings: from the datasheet or measured, and which one a kind of work is compared with."""

import pytest

from gpuprof.collectors.manifest import Calibration, Device, MeasuredCeiling
from gpuprof.roofline.machine.ceilings import Roof, at_clock, datasheet_ceilings, measured_ceilings
from gpuprof.roofline.machine.devices import find_spec

H100 = Device(index=0, kind="cuda", name="NVIDIA H100 80GB HBM3")
T4 = Device(index=0, kind="cuda", name="Tesla T4")


def datasheet_roof(device: Device) -> Roof:
    spec = find_spec(device).spec
    assert spec is not None
    return Roof(datasheet_ceilings(spec), "datasheet")


def gemm(precision: str, rate: float) -> MeasuredCeiling:
    return MeasuredCeiling(
        kind="compute",
        name=f"GEMM {precision}",
        rate=rate,
        spread=0.01,
        repeats=5,
        precision=precision,
        method="torch.mm",
    )


def stream(name: str, rate: float) -> MeasuredCeiling:
    return MeasuredCeiling(
        kind="memory", name=name, rate=rate, spread=0.01, repeats=5, level="DRAM", method=name
    )


def calibration(device: Device, *ceilings: MeasuredCeiling) -> Calibration:
    return Calibration(device=device, torch="2.13.0", threads=2, measured_ns=0, ceilings=ceilings)


def rate(roof: Roof, kind: str, precision: str) -> float | None:
    ceiling = roof.compute_rate(kind, precision)  # type: ignore[arg-type]
    return None if ceiling is None else ceiling.rate


def test_a_matmul_is_held_against_the_tensor_unit_of_its_precision() -> None:
    roof = datasheet_roof(H100)
    assert rate(roof, "matmul", "bf16") == pytest.approx(989.4e12)
    assert rate(roof, "matmul", "tf32") == pytest.approx(494.7e12)
    assert rate(roof, "matmul", "fp64") == pytest.approx(66.9e12)


def test_a_matmul_without_a_tensor_unit_is_held_against_the_vector_unit() -> None:
    assert rate(datasheet_roof(H100), "matmul", "fp32") == pytest.approx(66.9e12)


def test_a_matmul_in_a_precision_the_device_lacks_has_no_ceiling() -> None:
    assert rate(datasheet_roof(T4), "matmul", "bf16") is None
    assert rate(datasheet_roof(T4), "matmul", "fp16") == pytest.approx(65e12)


def test_vector_work_in_reduced_precision_is_held_against_the_fp32_vector_unit() -> None:
    roof = datasheet_roof(H100)
    assert rate(roof, "vector", "bf16") == pytest.approx(66.9e12)
    assert rate(roof, "vector", "fp16") == pytest.approx(66.9e12)
    assert rate(roof, "vector", "fp64") == pytest.approx(33.5e12)
    assert rate(roof, "vector", "integer") is None


def test_memory_has_a_ceiling_by_level() -> None:
    roof = datasheet_roof(H100)
    dram = roof.memory_rate()
    assert dram is not None
    assert dram.rate == pytest.approx(3350e9)
    assert roof.memory_rate("L2") is None


def test_datasheet_ceilings_carry_their_clock_and_document() -> None:
    ceiling = datasheet_roof(H100).compute_rate("matmul", "bf16")
    assert ceiling is not None
    assert ceiling.clock_mhz == 1830
    assert "whitepaper" in ceiling.reference
    assert ceiling.label == "bf16 tensor (datasheet, dense)"


def test_the_larger_of_two_measured_rates_is_the_roof() -> None:
    measured = measured_ceilings(
        calibration(H100, stream("copy", 2.9e12), stream("triad", 3.0e12), stream("read", 2.8e12))
    )
    assert [ceiling.rate for ceiling in measured] == [3.0e12]
    assert measured[0].reference == "triad"


def test_a_measured_product_is_put_on_the_unit_that_ran_it() -> None:
    on_gpu = measured_ceilings(calibration(H100, gemm("bf16", 7e14), gemm("fp32", 5e13)))
    assert [ceiling.unit for ceiling in on_gpu] == ["tensor", "vector"]
    plain = Device(index=0, kind="cpu", name="a CPU", architecture="x86_64 AVX512")
    matrix = Device(index=0, kind="cpu", name="a CPU", architecture="x86_64 AVX512 AMX")
    for cpu, unit in ((plain, "vector"), (matrix, "tensor")):
        measured = measured_ceilings(calibration(cpu, gemm("fp32", 1e11), gemm("bf16", 3e11)))
        assert [ceiling.unit for ceiling in measured] == ["vector", unit]
        # Either way a product is compared with its own rate and elementwise work with fp32.
        roof = Roof(measured, "measured")
        assert rate(roof, "matmul", "bf16") == 3e11
        assert rate(roof, "vector", "bf16") == 1e11


def test_sources_do_not_mix_in_one_roof() -> None:
    spec = find_spec(H100).spec
    assert spec is not None
    measured = measured_ceilings(calibration(H100, gemm("bf16", 7e14)))
    with pytest.raises(ValueError, match="another source"):
        Roof((*datasheet_ceilings(spec), *measured), "datasheet")


def test_a_link_is_promised_for_both_ways_and_is_a_ceiling_one_way() -> None:
    link = datasheet_roof(H100).link_rate()
    assert link is not None
    assert link.rate == pytest.approx(450e9)
    assert link.label == "NVLink (datasheet)"
    assert datasheet_roof(T4).link_rate() is None
    amd = datasheet_roof(Device(index=0, kind="hip", name="AMD Instinct MI300X"))
    assert amd.link_rate("NVLink") is None
    assert amd.link_rate("Infinity Fabric") is not None


def test_a_link_and_a_cache_are_no_dram() -> None:
    measured = calibration(
        H100,
        MeasuredCeiling(
            kind="link", name="PCIe h2d", rate=55e9, spread=0.01, repeats=7, level="PCIe h2d"
        ),
        MeasuredCeiling(kind="memory", name="L2 read", rate=8e12, spread=0, repeats=7, level="L2"),
    )
    roof = Roof(measured_ceilings(measured), "measured")
    assert roof.memory_rate() is None
    assert roof.memory_rate("L2") is not None
    host_link = roof.link_rate("PCIe h2d")
    assert host_link is not None
    assert host_link.rate == 55e9


def test_a_measured_rate_that_names_its_unit_is_of_that_unit() -> None:
    fma = MeasuredCeiling(
        kind="compute",
        name="FMA fp64",
        rate=30e12,
        spread=0,
        repeats=7,
        precision="fp64",
        unit="vector",
    )
    roof = Roof(measured_ceilings(calibration(H100, gemm("fp64", 60e12), fma)), "measured")
    assert rate(roof, "matmul", "fp64") == 60e12
    assert rate(roof, "vector", "fp64") == 30e12


def test_a_peak_scales_with_the_clock_and_bandwidth_does_not() -> None:
    roof = datasheet_roof(H100)
    tensor, dram = roof.compute_rate("matmul", "bf16"), roof.memory_rate()
    assert tensor is not None
    assert dram is not None
    slower = at_clock(tensor, 915)
    assert slower is not None
    assert (slower.rate, slower.clock_mhz) == (pytest.approx(494.7e12), 915)
    assert at_clock(tensor, 1830) is None
    assert at_clock(tensor, None) is None
    assert at_clock(dram, 915) is None
    measured = measured_ceilings(calibration(H100, gemm("bf16", 790e12)))
    assert at_clock(measured[0], 915) is None


def test_a_rate_with_fp16_accumulation_is_listed_and_never_a_roof() -> None:
    geforce = datasheet_roof(Device(index=0, kind="cuda", name="NVIDIA GeForce RTX 4090"))
    assert rate(geforce, "matmul", "fp16") == pytest.approx(165.2e12)
    (faster,) = [each for each in geforce.ceilings if each.precision == "fp16 summed in fp16"]
    assert faster.rate == pytest.approx(330.3e12)


def test_a_measured_rate_says_under_which_conditions() -> None:
    found = MeasuredCeiling(
        kind="memory",
        name="L3 read",
        rate=1e11,
        spread=0.04,
        repeats=5,
        level="L3",
        capacity_bytes=2**25,
        other_work=0.031,
        measured_ns=1_795_841_161_478_399_568,
    )
    (ceiling,) = measured_ceilings(calibration(Device(index=0, kind="cpu", name="A CPU"), found))
    assert ceiling.conditions == "2 threads, 3% other work, 2026-11-28 04:46 UTC"
    assert (ceiling.spread, ceiling.capacity_bytes) == (0.04, 2**25)
    # Of a calibration made before that was recorded.
    (older,) = measured_ceilings(calibration(H100, stream("copy", 3e12)))
    assert older.conditions == "2 threads"
