"""Measured against modelled work in the three reports."""

from io import StringIO

import msgspec
import pytest
from rich.console import Console

from gpuprof.reports.blocks import MeasuredTable
from gpuprof.reports.html.page import render_html
from gpuprof.reports.markdown import render_markdown
from gpuprof.reports.sections import measured
from gpuprof.reports.sections.level_points import level_points
from gpuprof.reports.terminal import render_summary
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.machine.ceilings import Ceiling
from gpuprof.roofline.measured_figures import (
    DifferenceReason,
    Measured,
    MeasuredFlops,
    MeasuredKernel,
    MeasuredWork,
)

GEMM = MeasuredKernel(
    kernels=("void gemm<float>(int)",),
    op="aten::mm",
    detail='[[4096, 4096], [4096, 4096]] ["c10::BFloat16", "c10::BFloat16"]',
    phase="forward",
    launches=2,
    calls=2,
    device_ns=1000,
    flops=(
        MeasuredFlops(measured=2 * 4096**3, modelled=2 * 4096**3, unit="tensor", precision="bf16"),
    ),
    bytes_read=Measured(150_000_000, 67_000_000),
    bytes_written=Measured(33_000_000, 33_000_000),
    l2_bytes=1_000_000_000,
    l1_bytes=2_000_000_000,
    reasons=(
        DifferenceReason("bytes read", "operands do not fit <L2>", "a book"),
        DifferenceReason("bytes written", "unexplained"),
    ),
)
ALONE = MeasuredKernel(
    kernels=("triton_k",),
    op="",
    detail="",
    phase="",
    launches=1,
    calls=0,
    device_ns=10,
    flops=(MeasuredFlops(measured=None, modelled=9, unit="vector", precision="fp32"),),
    bytes_read=Measured(5_000, None),
    bytes_written=Measured(None, None),
    l2_bytes=None,
    not_compared="no operator launched it",
)
WORK = MeasuredWork(launches=3, launches_in_trace=20, kernels=(GEMM, ALONE))


@pytest.fixture
def analysis(bare_analysis: Analysis) -> Analysis:
    return msgspec.structs.replace(bare_analysis, measured=WORK)


def test_a_row_has_each_figure_with_its_ratio_or_says_that_it_is_equal(
    analysis: Analysis,
) -> None:
    _, table = measured.SECTION.body(analysis)
    assert isinstance(table, MeasuredTable)
    gemm, alone = table.rows
    assert (gemm.title, gemm.subtitle) == ("gemm", "aten::mm · forward · mean of 2 calls")
    texts = [(cell.text, cell.ratio) for cell in gemm.cells]
    assert texts == [
        ("137 G bf16", "= model"),
        ("", ""),
        ("150 MB", "2.24 x"),
        ("33.0 MB", "= model"),
        ("1.00 GB", ""),
        ("2.00 GB", ""),
        ("137", ""),
    ]
    # Unknown is a dash, in operations too.
    assert [cell.text for cell in alone.cells] == ["", "-", "5.00 kB", "-", "-", "-", "-"]


def test_the_summary_counts_what_agrees_and_what_is_explained() -> None:
    fact = measured.counters_fact(WORK)
    assert fact.value == "3 of 20 launches"
    assert fact.note == (
        "tensor FLOPs equal in 1 of 1; DRAM read 2.24 x the model's; DRAM written 1.00 x the "
        "model's; 1 of 2 differences explained"
    )


def test_the_terminal_has_one_line(analysis: Analysis) -> None:
    out = StringIO()
    render_summary(analysis, Console(file=out, width=200))
    (line,) = (line for line in out.getvalue().split("\n") if line.startswith("Counters"))
    assert "3 of 20 launches: tensor FLOPs equal in 1 of 1" in line


def test_markdown_has_the_table_and_the_reasons_with_their_sources(analysis: Analysis) -> None:
    text = render_markdown(analysis)
    assert "## Measured against modelled" in text
    assert (
        "| 137 G bf16 = model |  | 150 MB 2.24 x | 33.0 MB = model | 1.00 GB | 2.00 GB | 137 |"
        in text
    )
    assert r"- gemm, bytes read: operands do not fit \<L2\> _(a book)_" in text
    assert "- gemm, bytes written: unexplained\n" in text
    assert r"- triton\_k, not compared: no operator launched it" in text


def test_html_has_the_table_and_the_reasons(analysis: Analysis) -> None:
    text = render_html(analysis)
    assert '<a href="#measured">Measured against modelled</a>' in text
    assert '<section id="measured">' in text
    assert "operands do not fit &lt;L2&gt;" in text
    assert "(a book)</span>" in text
    assert "<b>bytes written:</b> unexplained" in text


def test_counted_kernels_are_points_at_the_l2_level_where_its_ceiling_is_known(
    analysis: Analysis,
) -> None:
    assert level_points(analysis, "L2") == ()
    l2 = Ceiling(kind="memory", rate=5e12, source="measured", reference="", level="L2")
    analysis = msgspec.structs.replace(analysis, ceilings=(*analysis.ceilings, l2))
    (row, gemm), (_, alone) = level_points(analysis, "L2")
    assert f'<tbody id="{row}"' in render_html(analysis)
    assert gemm.arithmetic_intensity == 2 * 4096**3 / 1e9
    # Two calls in a microsecond.
    assert gemm.flops_per_s == pytest.approx(2 * 2 * 4096**3 / 1e-6)
    assert (alone.arithmetic_intensity, alone.flops_per_s) == (None, None)


def test_reports_without_counters_do_not_mention_them(bare_analysis: Analysis) -> None:
    assert 'id="measured"' not in render_html(bare_analysis)
    assert "Measured against modelled" not in render_markdown(bare_analysis)
