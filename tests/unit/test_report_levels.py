"""Levels of the roofline beside kernels and operators: modules, what was counted, links."""

import msgspec
import pytest

from gpuprof.reports.html.chart import Chart, make_chart
from gpuprof.reports.markdown import render_markdown
from gpuprof.reports.sections.roofline import plot_levels
from gpuprof.roofline.analysis import Analysis, Bottleneck, RooflinePoint, Transfer
from gpuprof.roofline.machine.ceilings import Ceiling
from gpuprof.roofline.measured_figures import (
    Measured,
    MeasuredFlops,
    MeasuredKernel,
    MeasuredWork,
)
from gpuprof.roofline.module_figures import ModuleTree, ModuleWork
from gpuprof.roofline.spread_figures import CallSpread


def chart_of(analysis: Analysis) -> Chart:
    chart = make_chart(analysis, plot_levels(analysis))
    assert chart is not None
    return chart


def module(path: str, **fields: object) -> ModuleWork:
    known: dict[str, object] = {
        "depth": 0,
        "device_ns": 2_000_000,
        "own_ns": 1,
        "device_fraction": 0.25,
        "flops": 6 * 10**11,
        "bytes": 10**9,
        "counted_fraction": 1.0,
        "kind": "memory",
    }
    return ModuleWork(path=path, **{**known, **fields})  # type: ignore[arg-type]


def test_modules_lie_where_their_work_puts_them_if_all_of_it_is_counted(
    training_analysis: Analysis,
) -> None:
    rows = (
        module("whole"),
        module("part", counted_fraction=0.6),
        module("copies", flops=0),
        module("unmoved", bytes=0),
    )
    tree = ModuleTree(with_module=1.0, with_line=1.0, rows=rows)
    chart = chart_of(msgspec.structs.replace(training_analysis, modules=tree))
    (level,) = (level for level in chart.levels if level.name == "module")
    (point,) = level.points
    # 600 GFLOP over 1 GB, in 2 ms.
    assert (point.row, point.x, point.y) == ("module-0", 600.0, 3e14)
    assert "Not in this plot: 3 of 4 modules" in level.note
    assert "1 without arithmetic" in level.note


def counted_kernel(read: int, calls: int = 2) -> MeasuredKernel:
    return MeasuredKernel(
        kernels=("gemm",),
        op="aten::mm",
        detail="",
        phase="forward",
        launches=2,
        calls=calls,
        device_ns=1_000_000,
        flops=(MeasuredFlops(measured=10**11, modelled=10**11, unit="tensor", precision="bf16"),),
        bytes_read=Measured(read, 10**8 if calls else None),
        bytes_written=Measured(10**8, 10**8 if calls else None),
        l2_bytes=None,
    )


def test_counted_and_modelled_points_are_a_pair_where_they_differ(
    training_analysis: Analysis,
) -> None:
    kernels = (counted_kernel(4 * 10**8), counted_kernel(10**8 + 10**5), counted_kernel(7, calls=0))
    measured = MeasuredWork(launches=6, launches_in_trace=9, kernels=kernels)
    chart = chart_of(msgspec.structs.replace(training_analysis, measured=measured))
    (level,) = (level for level in chart.levels if level.name == "counted")
    moved, equal, alone = level.points
    # 0.1 TFLOP over 0.5 GB as counted, 0.2 GB as modelled; two calls in a millisecond.
    assert (moved.x, moved.modelled) == (200.0, (500.0, pytest.approx(2e14)))
    assert (equal.modelled, alone.modelled) == (None, None)
    assert "hollow mark" in level.note
    only = MeasuredWork(launches=6, launches_in_trace=9, kernels=(counted_kernel(7, calls=0),))
    chart = chart_of(msgspec.structs.replace(training_analysis, measured=only))
    assert all(level.name != "counted" for level in chart.levels)


def transfer_point(name: str, transfer: Transfer) -> RooflinePoint:
    return RooflinePoint(
        level="kernel",
        name=name,
        calls=transfer.calls,
        device_ns=transfer.device_ns,
        device_fraction=0.1,
        bottleneck=Bottleneck(transfer.kind, "", None),
        transfer=transfer,
        spread=CallSpread(
            calls=2,
            shortest_ns=1,
            lower_quartile_ns=2,
            median_ns=3,
            upper_quartile_ns=4,
            longest_ns=5,
        ),
    )


def test_collectives_and_copies_have_roofs_of_their_own(training_analysis: Analysis) -> None:
    reduce = Transfer(
        kind="communication",
        what="all-reduce",
        group_size=4,
        calls=4,
        device_ns=1_000_000,
        exposed_ns=0,
        total_bytes=4 * 10**8,
        bytes_per_s=2e11,
        bus_bytes_per_s=3e11,
    )
    copy = Transfer(
        kind="copy",
        what="host to device",
        calls=2,
        device_ns=10,
        exposed_ns=0,
        total_bytes=200,
        bytes_per_s=2e9,
    )
    unknown = Transfer(kind="copy", what="host to device", calls=2, device_ns=10, exposed_ns=0)
    links = (
        Ceiling(kind="link", rate=4.5e11, source="datasheet", reference="", level="NVLink"),
        Ceiling(
            kind="link",
            rate=5e10,
            source="measured",
            reference="",
            level="PCIe h2d",
            latency_ns=2_000.0,
        ),
        Ceiling(kind="link", rate=9e10, source="measured", reference="", level="PCIe d2h"),
    )
    chart = chart_of(
        msgspec.structs.replace(
            training_analysis,
            kernels=(
                *training_analysis.kernels,
                transfer_point("nccl", reduce),
                transfer_point("copy", copy),
                transfer_point("lost", unknown),
            ),
            ceilings=(*training_analysis.ceilings, *links),
            roof_source="datasheet",
        )
    )
    assert chart.links is not None
    (level,) = chart.links.levels
    places = [(point.x, point.y) for point in level.points]
    # A collective by its bus bandwidth, which is what compares with a link.
    assert places == [(1e8, 3e11), (100.0, 2e9)]
    assert all(point.slowest is None for point in level.points)
    assert "1 of unknown size or rate" in level.note
    lines = {(line.name, line.source): line for line in chart.links.ceilings}
    nvlink = lines["NVLink, one way", "datasheet"]
    assert (nvlink.y0, nvlink.y1, nvlink.used, nvlink.is_roof) == (4.5e11, 4.5e11, True, True)
    slanted = lines["PCIe h2d latency", "measured"]
    # One transfer in 2 us, up to the size that the link moves in that time.
    assert slanted.y0 / slanted.x0 == pytest.approx(1 / 2e-6)
    assert slanted.x1 == lines["PCIe h2d, one way", "measured"].x0 == pytest.approx(1e5)
    assert not lines["PCIe d2h, one way", "measured"].used
    # They have no place on the axes of work.
    assert all(line.kind != "link" for line in chart.ceilings)
    assert chart.links.links is None


def test_the_table_of_ceilings_has_ridges(training_analysis: Analysis) -> None:
    lines = render_markdown(training_analysis).split("\n")
    (first, *_) = (line for line in lines if line.startswith("| bf16 tensor"))
    # 989.4 TFLOP/s over 3.35 TB/s.
    assert "| 295 FLOP/byte | datasheet" in first
    assert all("FLOP/byte" not in line for line in lines if line.startswith("| DRAM"))
