"""What a report begins with: the sentence, the first change, and the ladder to the step."""

import html
import re
from io import StringIO

import msgspec
import pytest
from golden_captures import analysis_of, page_of
from rich.console import Console

from gpuprof.reports import formatting
from gpuprof.reports.markdown import escaped, render_markdown
from gpuprof.reports.sections import SECTIONS
from gpuprof.reports.sections.headline import headline
from gpuprof.reports.sections.step import rungs
from gpuprof.reports.terminal import render_summary
from gpuprof.roofline.advice_figures import Binding
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.classes import classes
from gpuprof.roofline.rank_figures import LateLaunches
from gpuprof.roofline.step_figures import SplitPart, StepSplit

# A capture below tests/data (or several files of one run): what its sentence begins with, what else
# it says, and what the place of the first change has.
GOLDEN: dict[str, tuple[str, str, str]] = {
    # The host launches too slowly.
    "diagnosis/tiny_operators": (
        "Limited by waiting for launches: for 92.1% of a step of 4.358 ms the device has no work; ",
        "would make the step 4.01 ms shorter (3.60 ms to 4.01 ms)",
        "tiny_operators.py:16 aten::mul",
    ),
    # A resource, and what it loses.
    "diagnosis/fp32_products": (
        "Limited by arithmetic: 98.1% of a step of 54.40 ms; 22.6% is lost, as products run ",
        "would make the step 45.4 ms shorter (44.5 ms to 46.5 ms)",
        "fp32_products.py:17 aten::mm",
    ),
    "diagnosis/pageable_copies": (
        "Limited by exposed copies: 64.3% of a step of 13.11 ms; ",
        "would make the step 8.43 ms shorter",
        "pageable_copies.py:44 copies host to device, pageable",
    ),
    # A graph's replay, whose profiled steps are not the timed ones.
    "diagnosis/cuda_graph": (
        "No one thing limits a profiled step of 803.5 µs: 48.8% of it is memory traffic, 46.8% "
        "waiting for launches (most of that may be the profiler's doing); ",
        "would make a profiled step 349 µs shorter",
        "cuda_graph.py:15 aten::mul",
    ),
    "captures/h200_llama_block": (
        "Limited by arithmetic: 78.3% of a step of 8.972 ms; no single change is known",
        "72.5% of the step is what its work needs at the device's ceilings",
        "",
    ),
    "captures/h100_cuda_graph": (
        "What limits the program is not known: 100% of a step of 5.524 ms is work of CUDA graphs ",
        "what a change would gain is not known",
        "",
    ),
    "kineto/cpu-only.json": (
        "What limits the program is not known: 100% of the trace of 50.00 µs is work on a device "
        "of which no ceiling is known",
        "what a change would gain is not known",
        "",
    ),
    # Ranks that wait for one.
    "ranks/gloo4_ddp_work": (
        "Limited by waiting for another rank: 90.8% of a profiled step of 404.2 ms; ",
        "rank 3 makes ranks 0, 1 and 2 wait 346 ms in every step; ",
        "rank 3: aten::mm",
    ),
    "flight_recorder": ("Rank 0 waits in all_reduce #4 of group 0", "ranks 1-2 have not", ""),
    "ranks/straggler_rank0.json.gz ranks/straggler_rank3.json.gz": (
        "No one thing limits a profiled step of 20.96 ms: 48.4% of it is arithmetic, 35.8% exposed",
        "would make a profiled step 7.36 ms shorter",
        "all-reduce of 4 ranks",
    ),
}
WITH_A_SPLIT = [name for name in GOLDEN if name != "flight_recorder"]


@pytest.mark.parametrize("name", GOLDEN)
def test_the_sentence_says_what_limits_and_what_the_best_change_gains(name: str) -> None:
    begins, says, where = GOLDEN[name]
    found = headline(analysis_of(name))
    assert found.sentence.startswith(begins)
    assert says in found.sentence
    assert where in found.where
    assert bool(where) == bool(found.where)


@pytest.mark.parametrize("name", GOLDEN)
def test_all_reports_begin_with_the_same_words(name: str) -> None:
    analysis = analysis_of(name)
    found = headline(analysis)
    output = StringIO()
    render_summary(analysis, Console(file=output, width=2000))
    lines = [line.strip() for line in output.getvalue().splitlines() if line.strip()]
    assert found.sentence in lines[: 3 if analysis.holds_work else 2]
    parts = render_markdown(analysis).split("\n\n")
    assert f"**{escaped(found.sentence)}**" in parts[: 3 if analysis.holds_work else 2]
    page = page_of(name)
    overview = page[page.index('<section id="overview">') :]
    text = html.unescape(re.sub(r"<[^>]+>", "", overview))
    assert text.strip().startswith(found.sentence)


@pytest.mark.parametrize("name", WITH_A_SPLIT)
def test_the_sentence_claims_no_more_than_is_known(name: str) -> None:
    analysis = analysis_of(name)
    sentence = headline(analysis).sentence
    assert analysis.binds is not None
    assert sentence.startswith("Limited by") == (
        analysis.binds.fraction > 0.5 and analysis.binds.kind != "unknown"
    )
    assert (" shorter" in sentence) == bool(analysis.advice)
    if analysis.advice:
        first = max(analysis.advice, key=lambda advice: advice.gain_ns)
        assert f" {formatting.duration(first.gain_ns)} shorter" in sentence
        assert formatting.duration(first.gain_range_ns[0]) in sentence


def test_without_a_split_it_says_what_is_missing(bare_analysis: Analysis) -> None:
    found = headline(bare_analysis)
    assert found.sentence.startswith("What limits the program is not known, and so is what")
    assert bare_analysis.bottleneck.evidence in found.sentence
    assert not found.change


def test_profiled_steps_that_are_others_than_the_timed_ones_advise_nothing(
    training_analysis: Analysis,
) -> None:
    """Such as a first step that compiles: it has gains, which are those of no other step."""
    split, steps = training_analysis.split, training_analysis.steps
    assert split is not None
    assert steps.maximum_ns is not None
    for longer, advised in ((4, True), (6, False)):
        step_ns = steps.maximum_ns * longer
        long = StepSplit(
            step_ns=step_ns, basis="host range", parts=(SplitPart("compilation", step_ns),)
        )
        binds = Binding(kind="compilation", nanoseconds=step_ns, fraction=1.0)
        found = headline(
            msgspec.structs.replace(training_analysis, split=long, binds=binds, advice=())
        )
        assert ("what a change would gain is not known" in found.sentence) is not advised
        assert ("a profiled step takes" in found.change) is not advised


def test_two_resources_that_share_a_step_are_both_named(training_analysis: Analysis) -> None:
    """Half of it arithmetic, half memory traffic; with work of no model nobody knows of what."""
    binds = Binding(kind="compute", nanoseconds=495_000, fraction=0.495)
    for parts, told in (
        ({"roof": 60_000, "compute": 455_000, "memory": 485_000}, "50.5% of it is memory traffic"),
        (
            {"roof": 460_000, "compute": 90_000, "unknown": 450_000},
            "50.5% of it is other device work",
        ),
    ):
        split = StepSplit(
            step_ns=1_000_000,
            basis="timed",
            parts=tuple(SplitPart(kind, nanoseconds) for kind, nanoseconds in parts.items()),
        )
        analysis = msgspec.structs.replace(training_analysis, split=split, binds=binds, advice=())
        sentence = headline(analysis).sentence
        assert sentence.startswith("No one thing limits a step of 1.000 ms: ")
        assert told in sentence
        assert "49.5% arithmetic" in sentence


def test_an_analysis_that_does_not_tell_what_binds_tells_the_largest_loss(
    training_analysis: Analysis,
) -> None:
    assert training_analysis.binds is None
    assert headline(training_analysis).sentence == (
        f"The largest loss is compute: {training_analysis.bottleneck.evidence}"
    )


def test_a_busy_machine_is_a_part_of_what_limits() -> None:
    analysis = analysis_of("diagnosis/tiny_operators")
    for waiting, told in ((0.5, True), (0.05, False), (None, False)):
        steps = msgspec.structs.replace(analysis.steps, waiting_fraction=waiting)
        sentence = headline(msgspec.structs.replace(analysis, steps=steps)).sentence
        busy = "50.0% of the timed steps went by waiting for a core that other programs had"
        assert (busy in sentence) is told


def _among_ranks(analysis: Analysis, waiting_ns: int) -> Analysis:
    """`analysis` of rank 0 of a job, which waits so long for others and computes as long."""
    ranks = analysis_of("ranks/gloo4_ddp_work").ranks
    assert ranks is not None
    parts = (SplitPart("compute", waiting_ns), SplitPart("other rank", waiting_ns))
    return msgspec.structs.replace(
        analysis,
        split=StepSplit(step_ns=2 * waiting_ns, basis="host range", parts=parts),
        binds=Binding(kind="compute", nanoseconds=waiting_ns, fraction=0.5),
        ranks=ranks,
        advice=(),
    )


def test_waiting_that_launches_under_the_profiler_explain_is_doubted(
    training_analysis: Analysis,
) -> None:
    late = LateLaunches(rank=2, late_ns=10**9)
    doubt = "waiting for another rank (most of that may be the profiler's doing)"
    for waiting_ns, launches, doubted in (
        # A straggler explains 346 ms of it.
        (400_000_000, (late,), False),
        (900_000_000, (late,), True),
        (900_000_000, (), False),
    ):
        analysis = _among_ranks(training_analysis, waiting_ns)
        ranks = msgspec.structs.replace(analysis.ranks, late_launches=launches)
        sentence = headline(msgspec.structs.replace(analysis, ranks=ranks)).sentence
        assert (doubt in sentence) == doubted
        assert "rank 3 makes ranks 0, 1 and 2 wait" in sentence


def _cells(page: str) -> list[tuple[int, float, float, float]]:
    """Of each row of the page's ladder: time, share, where its bar begins, how long it is."""
    table = page[page.index('<table class="plain ladder">') :]
    rows = table[: table.index("</tbody>")].split("<tr>")[2:]
    found = []
    for row in rows:
        nanoseconds, share = re.findall(r'data-value="([^"]+)"', row)
        (bar,) = re.findall(r"margin-left:([\d.]+)%;width:([\d.]+)%", row)
        begins, length = map(float, bar)
        found.append((int(nanoseconds), float(share), begins, length))
    return found


@pytest.mark.parametrize("name", WITH_A_SPLIT)
def test_the_ladder_goes_to_the_step_without_a_gap(name: str) -> None:
    analysis = analysis_of(name)
    assert analysis.split is not None
    cells = _cells(page_of(name))
    assert sum(nanoseconds for nanoseconds, *_ in cells) == analysis.split.step_ns
    end = 0.0
    for nanoseconds, share, begins, length in cells:
        assert share == pytest.approx(nanoseconds / analysis.split.step_ns)
        assert nanoseconds > 0
        assert begins == pytest.approx(end, abs=0.002)
        end += 100 * nanoseconds / analysis.split.step_ns
        assert length == pytest.approx(100 * share, abs=0.001)
    assert end == pytest.approx(100)


def test_the_ladder_of_another_rank_goes_to_its_own_step() -> None:
    analysis = analysis_of("ranks/gloo4_ddp_work", 3)
    first = analysis_of("ranks/gloo4_ddp_work")
    assert analysis.split is not None
    assert first.split is not None
    assert analysis.split.step_ns != first.split.step_ns
    assert sum(rung.nanoseconds for rung in rungs(analysis, analysis.split)) == (
        analysis.split.step_ns
    )


def test_every_class_is_explained_in_a_section_that_exists(training_analysis: Analysis) -> None:
    parts = tuple(SplitPart(name, 1_000) for name in classes())
    split = StepSplit(step_ns=1_000 * len(parts), basis="timed", parts=parts)
    keys = {section.key for section in SECTIONS}
    found = {rung.row.name: rung.section for rung in rungs(training_analysis, split)}
    assert {key for key in found.values() if key} <= keys
    assert [name for name, key in found.items() if not key] == ["other device"]


@pytest.mark.parametrize("name", WITH_A_SPLIT)
def test_links_of_the_ladder_lead_to_sections_of_the_page(name: str) -> None:
    page = page_of(name)
    table = page[page.index('<table class="plain ladder">') : page.index("</table>")]
    for key in re.findall(r'href="#([^"]+)"', table):
        assert f'<section id="{key}">' in page


def test_a_terminals_bars_follow_each_other(training_analysis: Analysis) -> None:
    output = StringIO()
    render_summary(training_analysis, Console(file=output, width=120))
    bars = re.findall(r"(?m)%  ( *)(█+)", output.getvalue())
    end = 0
    for space, bar in bars:
        assert len(space) == end
        end += len(bar)
    assert len(bars) > 2
    assert end == 24
