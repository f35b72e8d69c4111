"""A report of Nsight Compute alone makes a roofline, compared with sums made here by hand."""

import csv
import gzip
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import ncu, schema
from gpuprof.collectors.joining.launch_keys import launch_keys
from gpuprof.reports.blocks import Facts
from gpuprof.reports.point_groups import GroupedPoint
from gpuprof.reports.point_rows import make_row
from gpuprof.reports.sections import coverage
from gpuprof.reports.sections.level_points import level_points
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.measured.counted_ceilings import counted_ceilings
from gpuprof.roofline.measured.counted_costs import cost_of_launches
from gpuprof.roofline.measured.counters import executed_work
from gpuprof.roofline.measured.levels import level_traffic
from gpuprof.roofline.measured.speed_of_light import peak_times

RAW = Path(__file__).resolve().parents[1] / "data" / "ncu" / "h100_ops_roofline.csv.gz"
SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
TENSOR = "sm__ops_path_tensor_src_{}.sum"
HGMMA = "sm__ops_path_tensor_op_hgmma_src_{}_sparsity_off.sum"
PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class Launch:
    """One row of the raw page, its numbers in bytes, seconds and hertz."""

    def __init__(self, names: list[str], units: list[str], row: list[str]) -> None:
        self._values = {
            name: (unit, text) for name, unit, text in zip(names, units, row, strict=True)
        }
        self.kernel = self._values["Kernel Name"][1]

    def __getitem__(self, metric: str) -> float:
        unit, text = self._values[metric]
        over, _, under = unit.partition("/")
        number = float(text.replace(",", ""))
        for part, sign in ((over, 1), (under, -1)):
            if part in ("us", "ns", "ms", "Kbyte", "Mbyte", "Gbyte", "Tbyte", "Ghz", "Mhz"):
                number *= PREFIXES[part[0]] ** sign
        return number

    @property
    def seconds(self) -> float:
        return self["gpu__time_duration.sum"]

    def operations(self) -> float:
        """All that was counted, as Nsight Compute's roofline sections weigh them."""
        cycles = self["smsp__cycles_elapsed.avg"]
        vector = sum(
            weight * self[SASS.format(kind + name)] * cycles
            for kind, scale in (("d", 1), ("f", 1), ("h", 2))
            for name, weight in (("add", scale), ("mul", scale), ("fma", 2 * scale))
        )
        types = ("bf16_dst_fp32", "fp16", "tf32_dst_fp32", "fp64", "int8")
        fp8 = ("fp8_sparsity_off", "fp8_sparsity_on")
        return vector + sum(self[TENSOR.format(name)] for name in (*types, *fp8))


@pytest.fixture(scope="module")
def launches() -> list[Launch]:
    with gzip.open(RAW, "rt", newline="") as file:
        names, units, *rows = csv.reader(line for line in file if not line.startswith("=="))
    return [Launch(names, units, row) for row in rows]


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyze(ncu.read(RAW))


def test_each_kernel_has_the_operations_bytes_and_time_of_its_launches(
    analysis: Analysis, launches: list[Launch]
) -> None:
    expected: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0])
    for launch in launches:
        sums = expected[launch.kernel]
        sums[0] += launch.operations()
        sums[1] += launch["dram__bytes_read.sum"]
        sums[2] += launch["dram__bytes_write.sum"]
        sums[3] += launch.seconds * 1e9
    seen: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0])
    for point in analysis.kernels:
        sums = seen[point.name]
        sums[0] += point.total_flops or 0
        sums[1] += point.bytes_read or 0
        sums[2] += point.bytes_written or 0
        sums[3] += point.device_ns
    assert seen.keys() == expected.keys()
    for name, figures in expected.items():
        # Six printed digits of the page, and half a byte a launch for the mean.
        assert seen[name] == pytest.approx(figures, rel=2e-5, abs=40), name
    assert analysis.coverage.with_flops == analysis.coverage.with_bytes == 1
    assert analysis.coverage.with_op == 0


def test_the_ceilings_are_peaks_at_the_clocks_of_the_launches_that_did_the_work(
    analysis: Analysis, launches: list[Launch]
) -> None:
    def rate(level: str) -> float:
        return next(
            c.rate for c in analysis.ceilings if c.source == "counters" and c.level == level
        )

    def together(counts: list[float], peaks: list[float]) -> float:
        return sum(counts) / sum(n / peak for n, peak in zip(counts, peaks, strict=True))

    dram = [
        each["dram__bytes.sum.peak_sustained"] * each["dram__cycles_elapsed.avg.per_second"]
        for each in launches
    ]
    moved = [each["dram__bytes_read.sum"] + each["dram__bytes_write.sum"] for each in launches]
    assert rate("DRAM") == pytest.approx(together(moved, dram), rel=1e-5)
    assert rate("DRAM") == pytest.approx(3.35e12, rel=1e-3)
    # 132 SMs, 4 stores and loads of 32 bytes a cycle each: no cycle moves more.
    l1 = [132 * 128 * each["l1tex__cycles_elapsed.avg.per_second"] for each in launches]
    assert min(l1) <= rate("L1") <= max(l1)
    # 1024 dense multiply-adds in bf16 each cycle of an SM's four tensor cores.
    products = [each for each in launches if each[TENSOR.format("bf16_dst_fp32")]]
    bf16 = next(c for c in analysis.ceilings if c.source == "counters" and c.precision == "bf16")
    assert bf16.rate == pytest.approx(
        together(
            [each[TENSOR.format("bf16_dst_fp32")] for each in products],
            [132 * 4096 * each["sm__cycles_elapsed.avg.per_second"] for each in products],
        ),
        rel=1e-5,
    )
    assert analysis.roof_source == "counters"


def test_a_kernel_s_roof_is_the_larger_of_its_times_at_the_ceilings(
    analysis: Analysis, launches: list[Launch]
) -> None:
    (launch,) = (each for each in launches if each.kernel == "add_k")
    (point,) = (each for each in analysis.kernels if each.name == "add_k")
    ceilings = {c.precision or c.level: c.rate for c in analysis.ceilings if c.source == "counters"}
    moved = launch["dram__bytes_read.sum"] + launch["dram__bytes_write.sum"]
    at_roof = max(moved / ceilings["DRAM"], launch.operations() / ceilings["fp32"])
    assert point.roof_fraction == pytest.approx(at_roof / launch.seconds, rel=1e-4)
    assert point.roof == "DRAM (counters)"
    assert point.bottleneck.kind == "memory"
    assert point.flops_per_s == pytest.approx(2**26 / launch.seconds)


def test_counted_kernels_stand_at_the_levels_of_caches_too(
    analysis: Analysis, launches: list[Launch]
) -> None:
    (launch,) = (each for each in launches if each.kernel == "add_k")
    wavefronts = launch["l1tex__lsu_writeback_active_mem_lgds.sum"]
    intensity = {
        level: next(
            p.arithmetic_intensity for _, p in level_points(analysis, level) if p.name == "add_k"
        )
        for level in ("L2", "L1")
    }
    assert intensity["L2"] == pytest.approx(2**26 / 32 / launch["lts__t_sectors.sum"], rel=1e-5)
    assert intensity["L1"] == pytest.approx(2**26 / 128 / wavefronts, rel=1e-5)


def test_a_report_is_no_step_and_has_no_model_to_compare_with(analysis: Analysis) -> None:
    assert analysis.utilization is None
    assert analysis.measured is not None
    assert all(not kernel.calls for kernel in analysis.measured.kernels)


ROOFLINE_SECTIONS = {
    "gpu__time_duration.sum": 1_000.0,
    **{SASS.format(name): 0.0 for name in ("dadd", "dmul", "dfma", "hadd", "hmul", "hfma")},
    **{SASS.format(name): 10.0 for name in ("fadd", "fmul", "ffma")},
    "smsp__cycles_elapsed.avg.per_second": 2e9,
    "sm__cycles_elapsed.avg.per_second": 2e9,
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": 128.0,
    "dram__bytes.sum.per_second": 3e9,
    "dram__bytes.sum.peak_sustained": 16.0,
    "dram__cycles_elapsed.avg.per_second": 1e9,
    "lts__lts2xbar_cycles_active.sum.per_second": 1e9,
    "lts__lts2xbar_cycles_active.sum.peak_sustained": 4.0,
    "lts__cycles_elapsed.avg.per_second": 1e9,
    "sm__inst_executed_pipe_tensor.sum": 0.0,
}


def test_the_roofline_sections_collect_rates_alone() -> None:
    work = executed_work(ROOFLINE_SECTIONS)
    # 2000 cycles in a microsecond, (1 + 1 + 2) * 10 operations in each.
    assert work.count("vector", "fp32") == 2_000 * 40
    assert (work.dram_bytes, work.l2_bytes, work.l1_bytes) == (3_000, 32_000, None)
    ceilings = {c.precision or c.level: c.rate for c in counted_ceilings([ROOFLINE_SECTIONS])}
    assert ceilings == pytest.approx({"fp32": 128 * 2 * 2e9, "DRAM": 16e9, "L2": 4 * 32 * 1e9})


def test_traffic_whose_directions_are_not_told_apart_has_a_roof_all_the_same(
    tmp_path: Path,
) -> None:
    page = tmp_path / "roofline.csv"
    names = ["ID", "Kernel Name", "Block Size", "Grid Size", *ROOFLINE_SECTIONS]
    units = {"gpu__time_duration.sum": "ns", "dram__bytes.sum.per_second": "byte/s"}
    row = ["0", "my_stencil", "(32, 1, 1)", "(1, 1, 1)", *map(repr, ROOFLINE_SECTIONS.values())]
    with page.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            [names, [units.get(name, "") for name in names], row]
        )
    (point,) = analyze(ncu.read(page)).kernels
    assert (point.bytes_read, point.bytes_written, point.undivided_bytes) == (None, None, 3_000)
    assert (point.bytes_per_s, point.flops_per_s) == (3e9, pytest.approx(80e9))
    assert point.arithmetic_intensity == pytest.approx(80 / 3)
    # 3 of 16 GB/s, and 80 of 512 GFLOP/s.
    assert point.roof_fraction == pytest.approx(3 / 16)
    texts = {fact.label: fact.value for fact in make_row("row", GroupedPoint(point), 0).figures}
    assert texts["Bytes"] == "3.00 kB read and written"


DETAILS = RAW.with_name("h100_ops_details.csv.gz")


def test_the_details_page_gives_bytes_and_says_what_was_not_counted() -> None:
    analysis = analyze(ncu.read(DETAILS))
    point = next(point for point in analysis.kernels if point.name == "add_k")
    # 536.9 MB read and 251.3 MB written in 260 us.
    assert point.bytes_per_s == pytest.approx((536.9e6 + 251.3e6) / 260.384e-6, rel=0.01)
    assert point.flops is None
    assert any(said.startswith("not counted: bf16") for said in point.assumptions)
    facts, *_ = coverage.SECTION.basis(analysis)
    assert isinstance(facts, Facts)
    named = {fact.label: fact.value for fact in facts.facts}["Not counted"]
    assert named.startswith("distribution_elementwise_grid_stride_kernel (")


def test_the_details_page_gives_each_kernel_the_share_of_its_busiest_unit() -> None:
    with gzip.open(DETAILS, "rt") as file:
        rows = list(csv.DictReader(line for line in file if line.startswith('"')))
    shares: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        if row["Section Name"] == "GPU Speed Of Light Throughput" and row["Metric Unit"] == "%":
            shares[row["ID"]][row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    names = {row["ID"]: row["Kernel Name"] for row in rows}
    launches = {name: [i for i in names if names[i] == name] for name in names.values()}
    alone = {name: shares[ids[0]] for name, ids in launches.items() if len(ids) == 1}
    analysis = analyze(ncu.read(DETAILS))
    assert len(alone) > 10
    points = {point.name: point for point in analysis.kernels if point.name in alone}
    assert points.keys() == alone.keys()
    for name, share in alone.items():
        sm, memory = share["Compute (SM) Throughput"], share["Memory Throughput"]
        assert points[name].roof_fraction == pytest.approx(max(sm, memory) / 100, rel=1e-3)
        assert (points[name].roof == "SM throughput (counters)") == (sm > memory)
    assert points["add_k"].roof == "DRAM throughput (counters)"
    # Most of the time goes to kernels whose SMs are busier than their memory.
    assert analysis.binds is not None
    assert analysis.binds.kind == "compute"
    of_sm = sum(p.device_ns for p in analysis.ops if p.roof == "SM throughput (counters)")
    assert analysis.binds.nanoseconds == pytest.approx(of_sm, abs=1)
    assert not any("launch in the capture" in said for said in analysis.warnings)


def test_shares_of_the_details_page_are_those_that_counts_and_peaks_give(
    analysis: Analysis,
) -> None:
    counted = {point.name: point for point in analysis.kernels}
    checked = set()
    for point in analyze(ncu.read(DETAILS)).kernels:
        other = counted.get(point.name)
        dense = other is not None and ("DRAM" in other.roof or "tensor" in other.roof)
        # The page of other launches of a name is another mean, and softmax computes in no tensor
        # unit: its SMs are busier than its memory.
        if other is None or not dense or other.calls != point.calls or "sdpa" in point.name:
            continue
        if other.bottleneck.kind == point.bottleneck.kind == "memory" and "DRAM" in point.roof:
            assert point.roof_fraction == pytest.approx(other.roof_fraction, rel=0.02)
            checked.add("DRAM")
        elif "tensor" in other.roof:
            assert point.roof_fraction == pytest.approx(other.roof_fraction, rel=0.05)
            checked.add("tensor")
    assert checked == {"DRAM", "tensor"}


def test_one_of_the_two_throughputs_says_nothing_of_a_kernel() -> None:
    sm = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
    dram = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
    duration = {"gpu__time_duration.sum": 1000.0}
    assert peak_times({**duration, sm: 40.0}) == ()
    assert peak_times({**duration, dram: 40.0}) == ()
    assert peak_times({sm: 40.0, dram: 60.0}) == ()
    times = peak_times({**duration, sm: 40.0, dram: 60.0})
    assert [(each.name, each.ns) for each in times] == [
        ("SM throughput", 400.0),
        ("DRAM throughput", 600.0),
    ]


def test_a_peak_is_worked_out_of_a_rate_and_its_share_where_that_has_digits() -> None:
    counters = {"lts__t_sectors.sum": 5.0, "lts__t_sectors.sum.per_second": 1e9}
    share = "lts__t_sectors.sum.pct_of_peak_sustained_elapsed"
    assert level_traffic({**counters, share: 25.0})["L2"].peak_bytes_per_s == 4e9 * 32
    assert level_traffic({**counters, share: 0.02})["L2"].peak_bytes_per_s is None


def test_no_ceiling_of_the_counters_counts_where_one_of_those_needed_is_missing() -> None:
    product = {**ROOFLINE_SECTIONS, TENSOR.format("fp16"): 5.0}
    assert counted_ceilings([product]) == ()
    dense = {HGMMA.format("fp16") + ".peak_sustained": 512.0}
    # The counter of all its kinds has the peak of sparse operations.
    sparse = {TENSOR.format("fp16") + ".peak_sustained": 1024.0}
    (fp16,) = (
        c for c in counted_ceilings([{**product, **dense, **sparse}]) if c.precision == "fp16"
    )
    assert fp16.rate == 512 * 2e9


@pytest.mark.parametrize(
    ("name", "counters", "flops"),
    [
        # Nothing says what the tensor units did, and the name says products.
        ("ampere_sgemm_128x64", {"fadd": 0, "fmul": 0, "ffma": 5}, None),
        ("my_stencil", {"fadd": 0, "fmul": 0, "ffma": 5}, 10),
        # What it computes may be in a type that was not counted.
        ("my_stencil", {"fadd": 0, "fmul": 0, "ffma": 0}, None),
    ],
)
def test_operations_that_were_not_counted_are_not_none(
    name: str, counters: dict[str, float], flops: int | None
) -> None:
    sass = SASS.replace(".per_cycle_elapsed", "")
    work = executed_work({sass.format(kind): count for kind, count in counters.items()})
    cost, reason = cost_of_launches(name, [work])
    assert (None if cost.flops is None else sum(part.count for part in cost.flops)) == flops
    assert bool(reason.startswith("its FLOPs")) == (flops is None)


def test_without_peaks_in_the_report_the_datasheet_counts_at_the_clock_that_was_seen() -> None:
    capture = ncu.read(RAW.with_name("h200_targeted_raw_base.csv.gz"))
    analysis = analyze(capture)
    values: dict[str, list[float]] = defaultdict(list)
    rows = capture.counters.filter(capture.counters["kernel"].str.starts_with("nvjet")).sort(
        "kernel", "grid", "launch_index"
    )
    for metric, value in rows.select("metric", "value").iter_rows():
        values[metric].append(value)
    counts = values[TENSOR.format("bf16_dst_fp32")]
    clocks = values["sm__cycles_elapsed.avg.per_second"]
    seconds = sum(values["gpu__time_duration.sum"]) / 1e9
    # 989.4 TFLOP/s at 1830 MHz.
    at_roof = sum(n / (989.4e12 * hz / 1.83e9) for n, hz in zip(counts, clocks, strict=True))
    points = [point for point in analysis.kernels if point.name.startswith("nvjet")]
    # The attention of the same file ran at another clock, and the clock is one of whole MHz.
    assert sum(p.roof_ns or 0 for p in points) / 1e9 == pytest.approx(at_roof, rel=0.01)
    assert sum(p.device_ns for p in points) / 1e9 == pytest.approx(seconds)
    assert {p.bottleneck.kind for p in points} == {"compute"}
    assert analysis.roof_source == "datasheet"


def test_what_was_counted_is_neither_of_a_model_nor_of_an_operator(build: CaptureBuilder) -> None:
    build.kernel(0, 1_000, 2_000, name="nvjet_tst")
    build.kernel(0, 3_000, 5_000, name="nvjet_tst")
    capture = build.build()
    (first, _) = launch_keys(capture.kernels, capture.launches).iter_rows(named=True)
    values = {TENSOR.format("bf16"): 8e6, "dram__bytes_read.sum": 1e6, "dram__bytes_write.sum": 2e6}
    rows = [{**first, "metric": name, "value": value, "unit": ""} for name, value in values.items()]
    counters = schema.conform("counters", pl.DataFrame(rows).drop("row"))
    analysis = analyze(replace(capture, counters=counters))
    by_calls = {point.flops is not None: point for point in analysis.kernels}
    # The launch that was counted, at the duration of the trace; the other stays unknown.
    assert by_calls[True].flops_per_s == pytest.approx(8e6 / 1e-6)
    assert (by_calls[True].calls, by_calls[False].calls) == (1, 1)
    assert analysis.utilization is None
    assert not any("MBU" in warning for warning in analysis.warnings)
    assert analysis.coverage.with_op == 0
    assert analysis.coverage.with_flops == pytest.approx(1 / 3)


def test_launches_like_counted_ones_have_their_figures(build: CaptureBuilder) -> None:
    def product(start: int, duration: int, blocks: int = 8) -> None:
        sizes = {"grid_x": blocks, "grid_y": 1, "grid_z": 1}
        sizes |= {"block_x": 128, "block_y": 1, "block_z": 1}
        build.kernel(0, start, start + duration, "nvjet_tst", **sizes)

    product(0, 1000)
    for start, duration in ((10_000, 1000), (20_000, 1200)):
        product(start, duration)
    # Of another inner size, to judge by its time; and of another grid.
    product(30_000, 2000)
    product(40_000, 1000, blocks=16)
    capture = build.build()
    first = next(launch_keys(capture.kernels, capture.launches).iter_rows(named=True))
    values = {TENSOR.format("bf16"): 8e6, "dram__bytes_read.sum": 1e6, "dram__bytes_write.sum": 2e6}
    rows = [{**first, "metric": name, "value": value, "unit": ""} for name, value in values.items()]
    counters = schema.conform("counters", pl.DataFrame(rows).drop("row"))
    analysis = analyze(replace(capture, counters=counters))
    (known,) = (point for point in analysis.kernels if point.flops is not None)
    assert (known.calls, known.device_ns) == (3, 3200)
    assert known.flops_per_s == pytest.approx(3 * 8e6 / 3.2e-6)
    assert any(
        "from 1 counted launches of this name, grid and block" in a for a in known.assumptions
    )
    assert sum(point.calls for point in analysis.kernels if point.flops is None) == 2
    assert "2 others took as long" in known.assumptions[-1]


def test_a_clock_of_zero_tells_no_ceiling() -> None:
    stopped = {name: 0.0 if "per_second" in name else x for name, x in ROOFLINE_SECTIONS.items()}
    assert counted_ceilings([stopped]) == ()
