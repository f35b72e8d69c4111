"""Who is waited for, in summaries, reports and advice."""

from dataclasses import replace
from io import StringIO

import msgspec
import polars as pl
import pytest
from made_up_ranks import Idle, MadeUpRank, Work, summaries
from rich.console import Console

from gpuprof.reports.markdown import render_markdown
from gpuprof.reports.terminal import render_summary
from gpuprof.roofline.advice.stragglers import late_ranks, with_late_ranks
from gpuprof.roofline.analysis import Analysis, Bottleneck
from gpuprof.roofline.rank_figures import RanksAnalysis
from gpuprof.roofline.ranks.instances import instances
from gpuprof.roofline.ranks.join import join

MILLISECOND = 1_000_000
STEPS = [[Work(10 * MILLISECOND)]] * 4
EXTRA = Work(3 * MILLISECOND, dims="[[512, 256], [256, 128]]", calls=20, line=12)
LAUNCHES = Idle(2 * MILLISECOND, "Python between operators", "launch", "", keeps=False)


def ranks_of(*ranks: MadeUpRank) -> RanksAnalysis:
    made = summaries(*ranks)
    found = join(made, instances(made))
    assert found is not None
    return found


def with_straggler() -> RanksAnalysis:
    slow = MadeUpRank([[*step, EXTRA] for step in STEPS], sm_clock_mhz=1800)
    return ranks_of(*(MadeUpRank(STEPS, sm_clock_mhz=1980) for _ in range(3)), slow)


def summary_of(analysis: Analysis) -> str:
    console = Console(file=StringIO(), width=200)
    render_summary(analysis, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_straggler_is_named_with_what_it_has_more_of(training_analysis: Analysis) -> None:
    analysis = msgspec.structs.replace(training_analysis, ranks=with_straggler())
    shown = summary_of(analysis)
    assert "rank 3  3.00 ms" in shown
    assert (
        "makes all others wait in every step: 20 calls of aten::mm 512x256x128 fp32 at train.py:12 "
        "where others make none, 3 ms more"
    ) in " ".join(shown.split())
    page = render_markdown(analysis)
    assert "## Who is waited for" in page
    assert "its device runs at 1800 MHz, others at 1980 MHz" in page
    assert "most of it at all-reduce, collective 1 of 1 in a step" in page
    assert "10.2 ms of 13.2 ms" in page


def test_nobody_is_named_where_ranks_only_vary(training_analysis: Analysis) -> None:
    found = ranks_of(*(MadeUpRank(STEPS) for _ in range(3)))
    analysis = msgspec.structs.replace(training_analysis, ranks=found)
    assert "no rank is later than ranks and steps vary" in summary_of(analysis)


def test_what_is_not_known_is_said(training_analysis: Analysis) -> None:
    made = summaries(*(MadeUpRank(STEPS) for _ in range(3)))[1:]
    found = join(made, instances(made))
    page = render_markdown(msgspec.structs.replace(training_analysis, ranks=found))
    assert "no collective is known of all its ranks: rank 0 of the job is not here" in page
    assert "Straggler" not in summary_of(msgspec.structs.replace(training_analysis, ranks=found))


def test_advice_is_to_take_the_work_from_the_late_rank() -> None:
    ranks = with_straggler()
    late, rest = late_ranks(ranks, 4 * MILLISECOND)
    assert (late.finding, late.what, late.place) == (
        "straggler's work",
        "rank 3: aten::mm",
        "train.py:12",
    )
    assert (late.gain.ns, late.gain.most_ns) == (3 * MILLISECOND, 3 * MILLISECOND)
    # Waiting is counted once.
    assert (rest.finding, rest.gain.ns) == ("waiting for ranks", MILLISECOND)
    # The late rank waits for nobody, and its report names it all the same.
    assert [each.finding for each in late_ranks(ranks, 0)] == ["straggler's work"]


@pytest.mark.parametrize(
    ("timed_ns", "gain", "most"), [(None, 0, 2 * MILLISECOND), (10_500_000, 0, 500_000)]
)
def test_late_launches_promise_no_gain(timed_ns: int | None, gain: int, most: int) -> None:
    fast = [MadeUpRank(STEPS, timed_ns=timed_ns) for _ in range(3)]
    slow = MadeUpRank([[*step, LAUNCHES] for step in STEPS], timed_ns=timed_ns)
    (rest,) = late_ranks(ranks_of(*fast, slow), 2 * MILLISECOND)
    assert (rest.finding, rest.gain.ns, rest.gain.most_ns) == ("waiting for ranks", gain, most)


def test_without_other_ranks_waiting_is_what_it_was() -> None:
    (found,) = late_ranks(None, MILLISECOND)
    assert (found.gain.ns, found.gain.least_ns) == (MILLISECOND, MILLISECOND // 2)
    assert list(late_ranks(None, 0)) == []


def test_the_verdict_names_who_is_waited_for() -> None:
    ranks = with_straggler()
    verdict = with_late_ranks(Bottleneck("other rank", "it waits", None), ranks)
    assert verdict.evidence == "it waits; rank 3 makes ranks 0, 1 and 2 wait 3 ms in every step"
    other = Bottleneck("compute", "it computes", None)
    assert with_late_ranks(other, ranks) is other


def test_few_steps_of_few_ranks_do_not_tell_that_nobody_is_late(
    training_analysis: Analysis,
) -> None:
    slow = MadeUpRank([[Work(12 * MILLISECOND)]])
    analysis = msgspec.structs.replace(
        training_analysis, ranks=ranks_of(MadeUpRank(STEPS[:1]), slow)
    )
    assert "not known  rank 1 came last to 1 of 1 collectives" in " ".join(
        summary_of(analysis).split(" ")
    )


def test_sends_and_receives_do_not_tell_who_is_waited_for(training_analysis: Analysis) -> None:
    made = [
        replace(each, collectives=each.collectives.with_columns(collective=pl.lit("send")))
        for each in summaries(MadeUpRank(STEPS), MadeUpRank(STEPS))
    ]
    found = join(made, instances(made))
    page = render_markdown(msgspec.structs.replace(training_analysis, ranks=found))
    assert "In none of the collectives here do all ranks the same" in page


def test_of_many_stragglers_ten_are_shown_and_the_others_counted(
    training_analysis: Analysis,
) -> None:
    """Of a thousand ranks some are always last: their rows filled a report."""
    ranks = with_straggler()
    (late,) = ranks.stragglers
    many = tuple(
        msgspec.structs.replace(late, rank=rank, pattern="moving") for rank in range(100, 135)
    )
    ranks = msgspec.structs.replace(ranks, stragglers=(late, *many))
    page = render_markdown(msgspec.structs.replace(training_analysis, ranks=ranks))
    assert page.count("512x256x128") == 10
    assert "26 more ranks make others wait: JSON has all." in page
