"""Small copies and fills of one name share a row."""

from typing import Any

import msgspec
import pytest

from gpuprof.reports.html.page import render_html
from gpuprof.reports.markdown import render_markdown
from gpuprof.reports.point_groups import grouped
from gpuprof.roofline.analysis import Analysis, Bottleneck, RooflinePoint


def _fill(shape: int, device_ns: int, **changes: Any) -> RooflinePoint:
    point = RooflinePoint(
        level="kernel",
        name="Memset (Device)",
        kind="memset",
        op="aten::mm",
        op_detail=f'[[{shape}, 4], [4, 5]] ["float", "float"]',
        phase="backward",
        calls=6,
        device_ns=device_ns,
        device_fraction=device_ns / 1e6,
        flops=(),
        bytes_read=0,
        bytes_written=24,
        roof_ns=1,
        roof="DRAM (datasheet)",
        bottleneck=Bottleneck("small", "too small", device_ns // 3),
    )
    return msgspec.structs.replace(point, **changes)


def test_small_fills_of_one_name_add_up() -> None:
    fills = [_fill(shape, 100 * shape) for shape in (5, 4, 3)]
    (group,) = grouped(fills)
    assert group.members == tuple(fills)
    assert group.point.calls == 18
    assert group.point.device_ns == 1200
    assert group.point.device_fraction == pytest.approx(1.2e-3)
    assert (group.point.bytes_read, group.point.bytes_written) == (0, 72)
    assert group.point.bytes_per_s == pytest.approx(72 / 1200e-9)
    assert group.point.roof_fraction == pytest.approx(3 / 1200)
    assert group.point.bottleneck.kind == "small"
    assert group.point.bottleneck.gain_ns == 500 // 3 + 400 // 3 + 300 // 3
    assert (group.point.op, group.point.phase) == ("", "backward")


def test_what_is_unknown_of_one_is_unknown_of_the_group() -> None:
    (group,) = grouped(
        [
            _fill(1, 300),
            _fill(2, 200, bytes_written=None, bottleneck=Bottleneck("unknown", "", None)),
            _fill(3, 100, roof="L2", phase="forward"),
        ]
    )
    assert group.point.bytes_written is None
    assert group.point.bytes_per_s is None
    assert group.point.roof_fraction is None
    assert group.point.phase == ""
    assert group.point.bottleneck == Bottleneck("unknown", "they are of 2 classes", None)


def test_large_copies_kernels_and_single_fills_stand_alone() -> None:
    points = [
        _fill(1, 40_000, name="Memcpy DtoD", kind="memcpy"),
        _fill(2, 30_000, name="Memcpy DtoD", kind="memcpy"),
        _fill(3, 300, kind="kernel"),
        _fill(4, 200, kind="kernel"),
        _fill(5, 100),
    ]
    assert [each.point for each in grouped(points)] == points
    assert not any(each.members for each in grouped(points))


def test_a_group_takes_the_place_that_its_time_gives_it() -> None:
    points = [_fill(1, 900, kind="kernel"), _fill(2, 500), _fill(3, 500)]
    assert [len(each.members) for each in grouped(points)] == [2, 0]


def test_reports_show_one_row_whose_figures_name_each(training_analysis: Analysis) -> None:
    fills = tuple(_fill(shape, 100 * shape) for shape in range(20, 3, -1))
    analysis = msgspec.structs.replace(
        training_analysis, kernels=(*training_analysis.kernels, *fills)
    )
    before = render_html(training_analysis).count('<tr id="kernel-')
    page = render_html(analysis)
    assert page.count('<tr id="kernel-') == before + 1
    assert "17 operators or shapes" in page
    for shape in range(4, 21):
        assert f"backward · {shape}x4x5 fp32" in page
    rows = [line for line in render_markdown(analysis).splitlines() if "Memset" in line]
    # The fixture has one that is not marked as a fill.
    assert len(rows) == 2
