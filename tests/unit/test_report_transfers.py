"""Communication and copies in a summary and in a report."""

from io import StringIO

import msgspec
import pytest
from capture_builder import H100, CaptureBuilder
from rich.console import Console

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Fingerprint
from gpuprof.reports.blocks import Facts, Paragraph, Table
from gpuprof.reports.console.terminal import stdout
from gpuprof.reports.point_groups import GroupedPoint
from gpuprof.reports.point_rows import make_row
from gpuprof.reports.sections.transfers import SECTION
from gpuprof.reports.terminal import render_summary
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"


@pytest.fixture
def analysis(build: CaptureBuilder) -> Analysis:
    """Two steps of 10 ms: products hide half of one all-reduce; a pageable copy hides nowhere."""
    for step in (0, 10_000_000):
        build.step("profiled", step, step + 10_000_000)
        build.mm(step, step + 50)
        build.kernel(step + 10, step + 100, step + 1_000_100, "gemm")
        for start in (500_100, 2_000_000):
            build.kernel(
                *(step + 20, step + start, step + start + 1_000_000, ALL_REDUCE),
                kind="collective",
                collective="allreduce",
                message_bytes=100_000_000,
                group_size=4,
                stream=20,
            )
        build.kernel(
            *(step + 30, step + 5_000_000, step + 5_500_000, "Memcpy HtoD (Pageable -> Device)"),
            kind="memcpy",
            bytes=8_000_000,
        )
    capture = build.build()
    (process,) = capture.processes
    process = msgspec.structs.replace(
        process, world_size=4, fingerprint=Fingerprint(devices=(H100,) * 4)
    )
    return analyze(Capture(capture.manifest, (process,), **capture.tables()))


def test_a_summary_has_a_line_for_each_kind(analysis: Analysis) -> None:
    (facts,) = SECTION.summary(analysis)
    assert isinstance(facts, Facts)
    assert [(fact.label, fact.value, fact.note) for fact in facts.facts] == [
        (
            "Transfers",
            "all-reduce",
            # 150 MB over the link in 1 ms, of 450 GB/s.
            "1.50 ms exposed of 2.00 ms a step; 2 calls, 200 MB over 4 ranks; bus bandwidth at "
            "least 150 GB/s, 33.3% of NVLink (datasheet)",
        ),
        (
            "",
            "host to device, pageable",
            "500 µs exposed of 500 µs a step; 1 call, 8.00 MB; 16.0 GB/s, 25.0% of PCIe "
            "(datasheet)",
        ),
    ]


def test_a_copy_that_takes_next_to_nothing_of_a_step_is_no_line(analysis: Analysis) -> None:
    collective, copy = analysis.transfers
    assert analysis.steps.length_ns is not None
    for share, expected in ((0.009, ["all-reduce"]), (0.011, ["all-reduce", copy.what])):
        device_ns = round(share * analysis.steps.length_ns * analysis.steps.profiled)
        both = (collective, msgspec.structs.replace(copy, device_ns=device_ns))
        (facts,) = SECTION.summary(msgspec.structs.replace(analysis, transfers=both))
        assert isinstance(facts, Facts)
        assert [fact.value.partition(",")[0] for fact in facts.facts] == expected


def test_a_report_has_a_row_for_each_message(analysis: Analysis) -> None:
    _, table, *_ = SECTION.body(analysis)
    assert isinstance(table, Table)
    assert table.rows == (
        (
            *("all-reduce", "100 MB", "4", "2", "2.00 ms", "-", "1.50 ms"),
            *("100 GB/s", "150 GB/s"),
            *("33.3%", "NVLink (datasheet)"),
        ),
        (
            *("host to device, pageable", "8.00 MB", "", "1", "500 µs", "", "500 µs"),
            *("16.0 GB/s", ""),
            *("25.0%", "PCIe (datasheet)"),
        ),
    )


def test_waiting_for_other_ranks_is_said(analysis: Analysis) -> None:
    first, second = analysis.transfers
    waited = msgspec.structs.replace(first, waiting_ns=3_000_000, exposed_waiting_ns=1_000_000)
    (facts,) = SECTION.summary(msgspec.structs.replace(analysis, transfers=(waited, second)))
    assert isinstance(facts, Facts)
    assert "of 2.00 ms a step; 2 calls, 200 MB over 4 ranks; 1.50 ms of it waits for other" in (
        facts.facts[0].note
    )


def test_what_is_unknown_is_said(analysis: Analysis) -> None:
    first, second = analysis.transfers
    unknown = msgspec.structs.replace(
        first,
        message_bytes=None,
        total_bytes=None,
        bytes_per_s=None,
        bus_bytes_per_s=None,
        roof_ns=None,
        roof="",
        roof_fraction=None,
        group_size=None,
        no_roof="how many bytes it moved was not recorded",
    )
    changed = msgspec.structs.replace(analysis, transfers=(unknown, second))
    (facts,) = SECTION.summary(changed)
    assert isinstance(facts, Facts)
    assert facts.facts[0].note == "1.50 ms exposed of 2.00 ms a step; 2 calls"
    _, table = SECTION.body(changed)
    assert isinstance(table, Table)
    assert table.rows[0] == (
        *("all-reduce", "-", "-", "2", "2.00 ms", "-", "1.50 ms", "-", "-", "-"),
        "how many bytes it moved was not recorded",
    )


def test_many_kinds_end_in_one_sentence(analysis: Analysis) -> None:
    each = analysis.transfers[0]
    many = tuple(msgspec.structs.replace(each, message_bytes=size) for size in range(60))
    *_, said, _ = SECTION.body(msgspec.structs.replace(analysis, transfers=many))
    assert said == Paragraph("10 other kinds expose 15.0 ms together.", "note")


def test_a_program_without_links_has_no_such_section(analysis: Analysis) -> None:
    nothing = msgspec.structs.replace(analysis, transfers=())
    assert (SECTION.summary(nothing), SECTION.body(nothing)) == ((), ())


def test_a_row_opens_to_what_it_moves(analysis: Analysis) -> None:
    points = {point.kind: point for point in analysis.kernels}
    made = {kind: make_row("id", GroupedPoint(point), 2) for kind, point in points.items()}
    assert made["collective"].subtitle.startswith("all-reduce 100 MB")
    rows = {kind: row.figures for kind, row in made.items()}
    collective = {fact.label: (fact.value, fact.note) for fact in rows["collective"]}
    assert collective["Message"] == ("100 MB", "all-reduce, over 4 ranks")
    assert collective["Bandwidth"] == ("100 GB/s", "bus bandwidth 150 GB/s")
    assert collective["Exposed"] == ("1.50 ms", "")
    assert {"FLOPs", "Bytes"} & set(collective) == set()
    copy = {fact.label: (fact.value, fact.note) for fact in rows["memcpy"]}
    assert copy["Message"] == ("8.00 MB", "host to device, pageable")
    assert copy["Bytes"][0] == "0 B read, 8.00 MB written"


@pytest.mark.parametrize("width", [60, 80, 99, 100, 120, 200])
def test_a_terminal_cuts_no_figure_of_communication(
    analysis: Analysis,
    width: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    render_summary(analysis, stdout(), None)
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("nccl"))
    assert row.split()[-2:] == ["33.3%", "communication"]


def test_a_terminal_with_room_names_the_message(analysis: Analysis) -> None:
    file = StringIO()
    render_summary(analysis, Console(file=file, width=120), None)
    assert "  all-reduce 100 MB, aten::mm" in file.getvalue()
