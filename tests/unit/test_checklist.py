"""A kernel's checklist: roofline.checklist against Nsight Compute's own rules, and by hand."""

import csv
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest
from capture_builder import H100, CaptureBuilder

from gpuprof.collectors.ncu.reader import read
from gpuprof.reports.checklist import check_facts
from gpuprof.reports.html.page import render_html
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.checklist.checks import LaunchFacts, checks_of
from gpuprof.roofline.checklist_figures import CheckSubject, KernelCheck
from gpuprof.roofline.measured.counters import values_by_launch
from gpuprof.roofline.measured.metric_table import (
    STALL_METRIC,
    metric_table,
    metrics_to_collect,
)

NCU = Path(__file__).resolve().parents[1] / "data" / "ncu"
RECORDED = NCU / "h100_ops_checklist.csv.gz"
SCHEDULER = {"smsp__issue_active.avg.per_cycle_active": 0.25}


def check(
    counters: dict[str, float], subject: CheckSubject, **launch: object
) -> KernelCheck | None:
    facts = LaunchFacts(**launch)  # type: ignore[arg-type]
    found = [each for each in checks_of(counters, facts, None) if each.subject == subject]
    return found[0] if found else None


def gain(counters: dict[str, float], subject: CheckSubject) -> float:
    found = check(counters, subject)
    assert found is not None
    assert found.gain_fraction is not None
    return found.gain_fraction


def left(counters: dict[str, float]) -> float:
    """What the busiest unit has left of its peak."""
    return 1 - max(value for name, value in counters.items() if "throughput.avg.pct" in name) / 100


def test_gains_are_those_that_nsight_computes_rules_estimate() -> None:
    """30 launches on an H100: what ncu printed for each rule, beside our figure."""
    launches = [dict(values) for _, values in values_by_launch(read(RECORDED).counters)]
    estimates: dict[tuple[int, str], list[float]] = defaultdict(list)
    with (NCU / "h100_ops_estimates.csv").open() as file:
        for row in csv.DictReader(file):
            number, estimate = int(row["launch"]), float(row["percent"]) / 100
            if row["kind"] == "local":
                # Of the unit alone; "global" ones are within what the busiest unit has left.
                estimate = min(estimate, left(launches[number]))
            estimates[number, row["rule"]].append(estimate)
    subjects: dict[str, CheckSubject] = {
        "CPIStall": "stalls",
        "AchievedOccupancy": "occupancy",
        "UncoalescedGlobalAccess": "coalescing",
    }
    compared = dict.fromkeys(subjects, 0)
    for (number, rule), theirs in estimates.items():
        counters = launches[number]
        if rule == "CPIStall":
            # They also count that a warp had to wait for another one's instruction.
            latency = counters["smsp__average_warp_latency_per_inst_issued.ratio"]
            waited = counters[STALL_METRIC.format("not_selected")] / latency
            theirs = [one for one in theirs if abs(one - min(waited, left(counters))) > 0.001]
        if not theirs:
            continue
        ours = gain(counters, subjects[rule])
        if (number, rule) == (23, "UncoalescedGlobalAccess"):
            # A launch of 4 us, most of whose traffic in L2 is none of its loads and stores.
            assert ours < max(theirs)
            continue
        compared[rule] += 1
        # No more than the cycles without an instruction, which they leave out.
        idle = 1 - counters["smsp__issue_active.avg.per_cycle_active"]
        expected = max(theirs) if rule == "UncoalescedGlobalAccess" else min(max(theirs), idle)
        assert ours == pytest.approx(expected, abs=0.01), (number, rule)
    assert compared["CPIStall"] >= 8
    assert compared["AchievedOccupancy"] >= 10
    assert compared["UncoalescedGlobalAccess"] >= 1


def test_bank_conflicts_cost_the_cycles_that_they_take() -> None:
    counters = {
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 1320.0,
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 2640.0,
        "sm__cycles_elapsed.max": 100.0,
        "launch__sm_count": 132.0,
    }
    found = check(counters, "bank conflicts")
    assert found is not None
    # 10 cycles of each SM's 100.
    assert found.gain_fraction == pytest.approx(0.1)
    assert found.values[0].value == 0.5
    assert found.costs
    without = counters | {"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 0.0}
    assert check(without, "bank conflicts") is None


def test_divergence_costs_the_idle_threads_of_cycles_with_an_instruction() -> None:
    metric = "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"
    assert gain(SCHEDULER | {metric: 16.0}, "divergence") == pytest.approx(0.5 * 0.25)
    found = check(SCHEDULER | {metric: 31.0}, "divergence")
    assert found is not None
    assert found.costs is False


def test_the_tail_is_what_equal_shares_would_save() -> None:
    counters = {
        "sm__cycles_active.avg": 60.0,
        "sm__cycles_active.max": 90.0,
        "sm__cycles_elapsed.max": 100.0,
    }
    assert gain(counters, "tail") == pytest.approx(30 / 100)


def test_a_launch_alone_tells_occupancy_and_tail() -> None:
    occupancy = check({}, "occupancy", occupancy=0.5)
    assert occupancy is not None
    assert (occupancy.gain_fraction, occupancy.costs, occupancy.source) == (None, None, "launch")
    tail = check({}, "tail", blocks=133, multiprocessors=132, waves=1.01)
    assert tail is not None
    # Two rounds for little more than one.
    assert tail.gain_fraction == pytest.approx(1 - 133 / 264)
    assert check({}, "stalls") is None
    assert checks_of({}, LaunchFacts(), None) == ()


def test_no_gain_is_more_than_what_lies_above_the_roof() -> None:
    counters = {
        "sm__cycles_active.avg": 60.0,
        "sm__cycles_active.max": 90.0,
        "sm__cycles_elapsed.max": 100.0,
    }
    (found,) = checks_of(counters, LaunchFacts(), 0.02)
    assert found.gain_fraction == 0.02
    assert found.costs is False


def test_copies_past_the_registers_are_no_bad_loads() -> None:
    """LDGSTS counts as sectors of loads, but no load's bytes are counted."""
    counters = {
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 1000.0,
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 0.0,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 0.0,
        "lts__cycles_active.avg": 9.0,
        "lts__cycles_elapsed.avg": 10.0,
        "lts__t_bytes.sum": 32000.0,
    }
    assert check(counters, "coalescing") is None


def test_facts_say_what_costs_first() -> None:
    launches = [dict(values) for _, values in values_by_launch(read(RECORDED).counters)]
    facts = list(check_facts(checks_of(launches[21], LaunchFacts(waves=5.94), None)))
    assert (facts[0].label, facts[0].value) == ("Coalescing", "costs up to 81.6%")
    assert "2.00 bytes used of each 32-byte sector that a load moves" in facts[0].note
    assert facts[1].label == "Stalls"
    assert "77.3% of a warp's time waiting for data from L1, L2 or DRAM" in facts[1].note
    assert facts[-1].value == "fine"


def test_a_report_has_the_checklists_of_its_largest_kernels() -> None:
    analysis = analyze(read(RECORDED))
    assert 5 < len(analysis.checklists) <= 12
    assert all(each.counted for each in analysis.checklists)
    points = {point.name: point for point in analysis.kernels}
    for checklist in analysis.checklists:
        roof = points[checklist.kernel].roof_fraction
        for each in checklist.checks:
            if roof is not None and each.gain_fraction is not None:
                assert each.gain_fraction <= max(0.0, 1 - roof) + 1e-9
    page = render_html(analysis)
    assert "Checklist of the largest kernels" in page
    assert "None was counted here" not in page


def test_a_trace_has_checklists_by_its_launches(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    op = build.mm(0, 100)
    shape = {"grid_x": 140, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
    build.kernel(10, 100, 900, "gemm", op_id=op, registers=64, shared_memory=0, **shape)
    device = msgspec.structs.replace(H100, compute_capability="9.0", multiprocessors=132)
    analysis = analyze(build.build(device))
    (checklist,) = analysis.checklists
    assert (checklist.kernel, checklist.counted) == ("gemm", 0)
    assert [each.subject for each in checklist.checks] == ["occupancy", "tail"]
    assert "None was counted here" in render_html(analysis)


def test_each_architecture_is_asked_for_what_it_has() -> None:
    table = metric_table()
    asked = {
        capability: metrics_to_collect(capability)
        for architecture in table.architecture
        for capability in architecture.capabilities
    }
    for capability, metrics in asked.items():
        l1 = [one for one in metrics if one.startswith("l1tex__lsu_writeback_active")]
        assert len(l1) == 1, capability
        assert "dram__bytes.sum" in metrics
        assert len(set(metrics)) == len(metrics)
    # As `ncu --query-metrics` has it for each chip.
    assert STALL_METRIC.format("gmma") in asked["9.0"]
    assert STALL_METRIC.format("gmma") not in asked["10.0"]
    assert "dram__bytes_read.sum" in asked["10.0"]
    assert "dram__bytes_read.sum" not in asked["12.0"]
    assert "l1tex__lsu_writeback_active_mem_lgds.sum" not in asked["8.0"]
    assert not any("sm__ops_path" in one for one in asked["7.0"])
    # Of an unknown GPU what no known one lacks that Nsight Compute of today supports.
    for capability, metrics in asked.items():
        if capability not in ("7.0", "7.2"):
            assert set(metrics_to_collect(None)) <= set(metrics), capability


def test_each_row_of_the_table_has_its_source() -> None:
    table = metric_table()
    rows = (*table.level, *table.vector, *table.vector_peak, table.tensor, *table.metric)
    assert all(row.source for row in rows)
    assert len({row.metric for row in table.metric}) == len(table.metric)
