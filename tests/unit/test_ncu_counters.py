"""roofline.counters: executed work from the hardware counters of a launch."""

from pathlib import Path

import pytest

from gpuprof.collectors import ncu
from gpuprof.roofline.measured.counters import (
    ExecutedFlops,
    ExecutedWork,
    executed_by_launch,
    executed_work,
)

RAW = Path(__file__).resolve().parents[1] / "data" / "ncu" / "h100_ops_raw.csv.gz"
DETAILS = RAW.with_name("h100_ops_details.csv.gz")
TENSOR = "sm__ops_path_tensor"


@pytest.fixture(scope="module")
def measured() -> list[tuple[str, ExecutedWork]]:
    """Kernel name and work of the 30 launches of ops.py on an H100, in launch order."""
    works = executed_by_launch(ncu.read(RAW).counters)
    return [(str(key[1]), work) for key, work in works.items()]


@pytest.mark.parametrize(
    ("launch", "precision", "operations"),
    [
        (2, "bf16", 2 * 4096**3),
        (5, "tf32", 2 * 2048**3),
        (7, "fp64", 2 * 1024**3),
        (12, "fp8", 2 * 4096**3),
        (19, "bf16", 2 * 2 * 2 * 32 * 2048**2 * 128),
    ],
)
def test_tensor_operations_are_those_of_the_product(
    measured: list[tuple[str, ExecutedWork]], launch: int, precision: str, operations: int
) -> None:
    work = measured[launch][1]
    assert work.count("tensor", precision) == operations
    others = [part for part in work.flops if part.unit == "tensor" and part.precision != precision]
    assert others
    assert all(part.count == 0 for part in others)


def test_a_product_without_tensor_units_is_counted_by_the_vector_unit(
    measured: list[tuple[str, ExecutedWork]],
) -> None:
    name, work = measured[4]
    assert "simt_sgemm" in name
    executed = work.count("vector", "fp32")
    assert executed is not None
    # The products, and one multiplication by alpha for each of the 2048^2 results.
    assert executed == pytest.approx(2 * 2048**3 + 2048**2, rel=1e-6)
    assert work.count("tensor", "tf32") == 0


@pytest.mark.parametrize(
    ("launch", "megabytes_read"), [(14, 134.2), (15, 247.6), (27, 536.9)], ids=str
)
def test_dram_traffic_is_what_is_known_of_the_recording(
    measured: list[tuple[str, ExecutedWork]], launch: int, megabytes_read: float
) -> None:
    read = measured[launch][1].dram_bytes_read
    assert read is not None
    assert round(read / 1e6, 1) == megabytes_read


def test_an_elementwise_addition_counts_one_operation_an_element(
    measured: list[tuple[str, ExecutedWork]],
) -> None:
    name, work = measured[27]
    assert name == "add_k"
    assert work.count("vector", "fp32") == 2**26
    assert work.dram_bytes_written == 251_316_224
    assert work.duration_ns == 260_384
    assert work.sm_clock_hz == 1_994_402_000
    # Every byte of the two inputs and the output passes L2 at least once.
    assert work.l2_bytes is not None
    assert work.l2_bytes > 3 * 4 * 2**26


def test_the_details_page_gives_dram_bytes_by_its_throughput_only(
    measured: list[tuple[str, ExecutedWork]],
) -> None:
    for (_, whole), part in zip(
        measured, executed_by_launch(ncu.read(DETAILS).counters).values(), strict=True
    ):
        assert part.flops == ()
        assert part.dram_bytes_read is None
        assert part.dram_bytes == pytest.approx(whole.dram_bytes, rel=0.02)


def test_a_parent_and_its_parts_count_once() -> None:
    work = executed_work(
        {
            f"{TENSOR}_src_bf16_dst_fp32.sum": 100,
            f"{TENSOR}_op_hmma_src_bf16_dst_fp32_sparsity_off.sum": 30,
            f"{TENSOR}_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum": 70,
            f"{TENSOR}_op_hgmma_src_bf16_dst_fp32_sparsity_on.sum": 0,
        }
    )
    assert work.flops == (ExecutedFlops("tensor", "bf16", 100),)


def test_parts_without_their_parent_add_up() -> None:
    work = executed_work(
        {f"{TENSOR}_src_fp8_sparsity_off.sum": 60, f"{TENSOR}_src_fp8_sparsity_on.sum": 40}
    )
    assert work.count("tensor", "fp8") == 100


def test_counters_that_overlap_in_part_give_no_sum() -> None:
    work = executed_work(
        {f"{TENSOR}_src_fp16_dst_fp32.sum": 60, f"{TENSOR}_op_hgmma_src_fp16_sparsity_off.sum": 40}
    )
    assert work.count("tensor", "fp16") is None


def test_the_sparsity_of_another_type_is_no_part() -> None:
    work = executed_work(
        {
            f"{TENSOR}_src_fp16.sum": 5,
            f"{TENSOR}_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum": 7,
            f"{TENSOR}_src_fp4_fp6_fp8_dst_fp32.sum": 9,
            f"{TENSOR}_src_int1.sum": 11,
            f"{TENSOR}_src_bf16_dst_fp32.avg": 13,
        }
    )
    assert work.flops == (ExecutedFlops("tensor", "bf16", 7), ExecutedFlops("tensor", "fp16", 5))


def sass(instruction: str, suffix: str = "") -> str:
    return f"smsp__sass_thread_inst_executed_op_{instruction}_pred_on.sum{suffix}"


@pytest.mark.parametrize(
    ("instructions", "precision", "operations"),
    [
        ({"dadd": 1, "dmul": 10, "dfma": 100}, "fp64", 211),
        ({"fadd": 1, "fmul": 10, "ffma": 100}, "fp32", 211),
        ({"hadd": 1, "hmul": 10, "hfma": 100}, "fp16", 422),
    ],
)
def test_a_fused_instruction_is_two_and_halves_are_pairs(
    instructions: dict[str, int], precision: str, operations: int
) -> None:
    work = executed_work({sass(name): count for name, count in instructions.items()})
    assert work.flops == (ExecutedFlops("vector", precision, operations),)


def test_a_rate_without_cycles_and_a_missing_instruction_are_unknown() -> None:
    assert executed_work({sass("fadd"): 5, sass("ffma"): 5}).flops == ()
    rates = {sass(name, ".per_cycle_elapsed"): 2.0 for name in ("fadd", "fmul", "ffma")}
    assert executed_work(rates).flops == ()
    with_cycles = executed_work({**rates, "smsp__cycles_elapsed.avg": 10.0})
    assert with_cycles.count("vector", "fp32") == 80


def test_sectors_stand_for_bytes_where_bytes_were_not_collected() -> None:
    work = executed_work(
        {"dram__sectors_read.sum": 3, "dram__sectors_write.sum": 2, "lts__t_sectors.sum": 10}
    )
    assert (work.dram_bytes_read, work.dram_bytes_written) == (96, 64)
    assert (work.dram_bytes, work.l2_bytes) == (160, 320)


def test_no_counters_are_no_knowledge() -> None:
    assert executed_work({}) == ExecutedWork()
