"""Who makes the others wait, by how much and why; and that ranks which only vary do not."""

from statistics import median

import numpy as np
import pytest
from made_up_ranks import Idle, MadeUpRank, Work, summaries

from gpuprof.roofline.rank_figures import RanksAnalysis
from gpuprof.roofline.ranks.channels import MORE_WORK, OWN, channels
from gpuprof.roofline.ranks.instances import instances
from gpuprof.roofline.ranks.join import join
from gpuprof.roofline.ranks.own_times import own_times
from gpuprof.roofline.ranks.summary import OTHERS, RankSummary

MILLISECOND = 1_000_000
SLEEP = Idle(4 * MILLISECOND)


def joined(made: list[RankSummary]) -> RanksAnalysis:
    found = join(made, instances(made))
    assert found is not None
    return found


def varying(seed: int, ranks: int, steps: int, spread: float = 0.02) -> list[list[list[Work]]]:
    """Work of about 10 ms for each rank and step, two operators of it, that varies by `spread`."""
    random = np.random.default_rng(seed)
    return [
        [
            [
                Work(round(6 * MILLISECOND * (1 + spread * random.standard_normal()))),
                Work(
                    round(4 * MILLISECOND * (1 + spread * random.standard_normal())), "aten::relu"
                ),
            ]
            for _ in range(steps)
        ]
        for _ in range(ranks)
    ]


@pytest.mark.parametrize("ranks", [2, 4, 16])
@pytest.mark.parametrize("spread", [0.003, 0.2])
def test_ranks_that_only_vary_are_no_stragglers(ranks: int, spread: float) -> None:
    for seed in range(3):
        for steps in (1, 3, 8):
            made = summaries(*map(MadeUpRank, varying(seed, ranks, steps, spread)))
            found = joined(made)
            assert found.stragglers == (), (seed, steps)
            assert found.late_launches == ()


def test_few_steps_do_not_look_steadier_than_they_are() -> None:
    """A deviation from three or four steps that comes out short makes every third job an alarm."""
    alarms = 0
    for seed in range(12):
        for ranks, steps in ((2, 4), (4, 3)):
            made = summaries(*map(MadeUpRank, varying(1000 + seed, ranks, steps, 0.2)))
            alarms += bool(joined(made).stragglers)
    assert alarms <= 1


@pytest.mark.parametrize(("spread", "late"), [(0.003, [3]), (0.2, [])])
def test_a_small_pause_counts_where_it_is_beyond_what_ranks_vary_by(
    spread: float, late: list[int]
) -> None:
    """The same pause in every step, of 3 % of it."""
    work = varying(1, 4, 3, spread)
    paused = [[*step, Idle(300_000)] for step in work[3]]
    made = summaries(*map(MadeUpRank, work[:3]), MadeUpRank(paused))
    assert [each.rank for each in joined(made).stragglers] == late


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("ranks", [2, 4, 9])
def test_more_work_makes_a_rank_late(ranks: int, numbered: bool) -> None:
    work = varying(1, ranks, 4)
    extra = Work(3 * MILLISECOND, dims="[[4096, 4096], [4096, 4096]]", calls=20, line=12)
    slow = [[*step, extra] for step in work[-1]]
    made = summaries(*map(MadeUpRank, [*work[:-1], slow]), numbered=numbered)
    (late,) = joined(made).stragglers
    assert (late.rank, late.pattern, late.steps) == (ranks - 1, "persistent", (0, 1, 2, 3))
    assert late.waiting == tuple(range(ranks - 1))
    # By hand: what the late rank has more of than the median of the others, and no more than they
    # wait for it.
    own = np.array([[sum(part.nanoseconds for part in step) for step in rank] for rank in work])
    own[-1] += extra.nanoseconds
    for position, ns in enumerate(late.steps):
        beyond = own[-1, position] - median(own[:-1, position])
        assert late.late_ns == pytest.approx(beyond, rel=0.25), ns
    (cause, *_) = late.causes
    assert (cause.kind, cause.what, cause.input_dims) == ("more work", "aten::mm", extra.dims)
    assert (cause.calls, cause.usual_calls, cause.longer_ns) == (20, 0, 3 * MILLISECOND)
    assert cause.place == "train.py:12"
    assert late.at is not None
    assert (late.at.collective, late.at.nth, late.at.of) == ("all-reduce", 1, 1)
    assert late.step_without_ns < late.step_ns


def test_the_cost_is_what_the_others_wait() -> None:
    """Exact numbers: nothing varies."""
    fast = MadeUpRank([[Work(10 * MILLISECOND)]] * 3)
    slow = MadeUpRank([[Work(10 * MILLISECOND), SLEEP]] * 3)
    next_slow = MadeUpRank([[Work(10 * MILLISECOND), Work(MILLISECOND, "aten::relu")]] * 3)
    (late, next_late) = joined(summaries(fast, fast, slow, next_slow, fast)).stragglers
    assert (late.rank, late.late_ns, late.per_step_ns) == (2, 4 * MILLISECOND, 4 * MILLISECOND)
    # Without it the others would wait for the next one.
    assert late.step_ns - late.step_without_ns == late.beyond_next_ns
    assert (next_late.rank, next_late.late_ns) == (3, MILLISECOND)
    (cause,) = late.causes
    assert (cause.kind, cause.what, cause.place) == ("idle", "time.sleep", "train.py:7")


def test_pauses_too_small_to_be_named_make_a_rank_late_together() -> None:
    work = varying(1, 2, 4, 0.003)
    unnamed = Idle(4 * MILLISECOND, culprit=OTHERS, place="")
    made = summaries(MadeUpRank(work[0]), MadeUpRank([[*step, unnamed] for step in work[1]]))
    channel = channels(made, own_times(made, instances(made)))["channel"].unique()
    assert set(channel) == {OWN, MORE_WORK}
    (late,) = joined(made).stragglers
    assert (late.rank, late.pattern) == (1, "persistent")
    assert late.causes[0].what == "small causes of host work"


@pytest.mark.parametrize(("last_ms", "late"), [(2.0, [1]), (0.3, [])])
def test_a_pause_that_one_rank_alone_has_in_every_step_may_change(
    last_ms: float, late: list[int]
) -> None:
    """The first profiled step begins without a queue, which hides most of the pause later."""
    work = varying(1, 2, 3)
    pauses = [Idle(round(ms * MILLISECOND)) for ms in (9.0, 3.5, last_ms)]
    paused = [[*step, pause] for step, pause in zip(work[1], pauses, strict=True)]
    made = summaries(MadeUpRank(work[0]), MadeUpRank(paused))
    assert [each.rank for each in joined(made).stragglers] == late


def test_a_pause_that_both_ranks_have_is_no_rank_s_own() -> None:
    work = varying(1, 2, 3)
    pauses = [Idle(ms * MILLISECOND) for ms in (9, 4, 2)]
    half = [Idle(pause.nanoseconds // 2) for pause in pauses]
    made = summaries(
        *(
            MadeUpRank([[*step, pause] for step, pause in zip(own, each, strict=True)])
            for own, each in zip(work, (half, pauses), strict=True)
        )
    )
    assert joined(made).stragglers == ()


@pytest.mark.parametrize(
    ("timed_loader_ns", "at_most_ns"),
    [(None, 3_000_000), (3_000_000, 3_000_000), (1_000_000, 1_000_000), (20_000, None)],
)
def test_a_loader_that_is_slow_while_profiled_alone_makes_nobody_late(
    timed_loader_ns: int | None, at_most_ns: int | None
) -> None:
    work = [[Work(10 * MILLISECOND)]] * 3
    loading = Idle(3 * MILLISECOND, "next batch of a DataLoader", "data loader", "train.py:9")
    loads = MadeUpRank(
        [[*step, loading] for step in work],
        timed_ns=14 * MILLISECOND,
        timed_loader_ns=timed_loader_ns,
    )
    found = joined(summaries(MadeUpRank(work, timed_ns=14 * MILLISECOND), loads)).stragglers
    assert [late.at_most_ns for late in found] == ([] if at_most_ns is None else [at_most_ns])


def test_loaders_that_all_ranks_wait_for_take_nothing_from_who_is_late() -> None:
    loading = Idle(3 * MILLISECOND, "next batch of a DataLoader", "data loader", "train.py:9")
    steps = [[Work(10 * MILLISECOND), loading]] * 3
    timed = {"timed_ns": 20 * MILLISECOND, "timed_loader_ns": 20_000}
    late = MadeUpRank([[*step, SLEEP] for step in steps], **timed)
    (found,) = joined(summaries(MadeUpRank(steps, **timed), late)).stragglers
    assert (found.rank, found.at_most_ns) == (1, 4 * MILLISECOND)


def test_a_rank_that_is_late_now_and_then_is_named_however_little_the_mean_step_loses() -> None:
    pause = Idle(300_000)
    steps = [[Work(10 * MILLISECOND)]] * 20
    slow = [[*step, pause] if at % 5 == 1 else step for at, step in enumerate(steps)]
    (late,) = joined(summaries(MadeUpRank(steps), MadeUpRank(slow))).stragglers
    assert (late.pattern, late.every, late.per_step_ns) == ("periodic", 5, 60_000)


def test_late_in_every_third_step_is_periodic() -> None:
    work = varying(2, 4, 12)
    slow = [[*parts, SLEEP] if step % 3 == 1 else parts for step, parts in enumerate(work[1])]
    work[1] = slow  # type: ignore[assignment]
    (late,) = joined(summaries(*map(MadeUpRank, work))).stragglers
    assert (late.rank, late.pattern, late.every) == (1, "periodic", 3)
    assert late.steps == (1, 4, 7, 10)
    assert late.per_step_ns == pytest.approx(late.late_ns * 4 / 12, abs=1)


@pytest.mark.parametrize(("ranks", "steps"), [(4, 8), (2, 6), (3, 3)])
def test_another_rank_each_time_is_moving(ranks: int, steps: int) -> None:
    work = varying(3, ranks, steps, 0.01)
    made = summaries(
        *(
            MadeUpRank([[*parts, SLEEP] if at % ranks == rank else parts for at, parts in own])
            for rank, own in enumerate(map(enumerate, work))
        )
    )
    found = joined(made).stragglers
    assert {late.rank for late in found} == set(range(ranks))
    assert {late.pattern for late in found} == {"moving"}


def test_one_hiccup_is_no_straggler() -> None:
    work = varying(4, 4, 6)
    work[2][3] = [*work[2][3], SLEEP]  # type: ignore[list-item]
    assert joined(summaries(*map(MadeUpRank, work))).stragglers == ()


def test_late_launches_under_the_profiler_are_said_apart() -> None:
    work = varying(5, 4, 4)
    launches = Idle(5 * MILLISECOND, "Python between operators", "launch", "", keeps=False)
    made = summaries(
        *(MadeUpRank(own, timed_ns=12 * MILLISECOND) for own in work[:3]),
        MadeUpRank([[*step, launches] for step in work[3]], timed_ns=12 * MILLISECOND),
    )
    found = joined(made)
    assert found.stragglers == ()
    (late,) = found.late_launches
    assert late.rank == 3
    assert late.late_ns == pytest.approx(5 * MILLISECOND, rel=0.1)
    # Of a step of 12 ms its work takes 10.
    assert late.at_most_ns == pytest.approx(2 * MILLISECOND, rel=0.2)


def test_a_slow_device_does_the_same_work_at_a_lower_clock() -> None:
    work = varying(6, 4, 4, 0.005)
    slow = [[Work(round(part.nanoseconds * 1.2), part.name) for part in step] for step in work[0]]
    made = summaries(
        MadeUpRank(slow, sm_clock_mhz=1200),
        *(MadeUpRank(own, sm_clock_mhz=1980) for own in work[1:]),
    )
    (late,) = joined(made).stragglers
    assert (late.rank, late.sm_clock_mhz, late.usual_sm_clock_mhz) == (0, 1200, 1980)
    assert {cause.kind for cause in late.causes} == {"slower work"}


def test_the_late_rank_of_one_group_is_not_looked_for_in_others() -> None:
    """Two groups of one name: ranks 0 and 1, ranks 2 and 3."""
    work = varying(7, 4, 4)
    pairs = ((0, 1), (0, 1), (2, 3), (2, 3))
    slow = [[*step, SLEEP] for step in work[3]]
    made = summaries(
        *(
            MadeUpRank(own, group="tensor", members=pair)
            for own, pair in zip([*work[:3], slow], pairs, strict=True)
        ),
        named=True,
    )
    (late,) = joined(made).stragglers
    assert (late.rank, late.waiting) == (3, (2,))


def test_who_is_waited_for_is_unknown_without_the_others() -> None:
    work = varying(8, 4, 4)
    made = summaries(*map(MadeUpRank, [*work[:3], [[*step, SLEEP] for step in work[3]]]))
    found = joined(made[1:])
    assert (found.missing, found.matched, found.stragglers) == ((0,), 0, ())
    assert found.ranks[0].steps[0].wait_ns is None


def test_ranks_of_other_step_counts_are_compared_in_the_steps_that_all_have() -> None:
    work = varying(9, 3, 5)
    slow = [[*step, SLEEP] for step in work[2]]
    made = summaries(MadeUpRank(work[0]), MadeUpRank(work[1][:4]), MadeUpRank(slow))
    (late,) = joined(made).stragglers
    assert (late.rank, late.of_steps) == (2, 4)


def test_steps_are_compared_by_their_collectives_however_each_rank_numbers_them() -> None:
    """Every other step is twice as long on all ranks, and rank 1 counts one step less."""
    work = varying(10, 3, 6, 0.003)
    for own in work:
        own[::2] = [[*step, Work(10 * MILLISECOND, "aten::conv2d")] for step in own[::2]]
    slow = [[*step, SLEEP] for step in work[1]]
    made = summaries(
        MadeUpRank(work[0], first_step=5),
        MadeUpRank(slow, first_step=4),
        MadeUpRank(work[2], first_step=5),
    )
    (late,) = joined(made).stragglers
    assert (late.rank, late.pattern, late.steps) == (1, "persistent", tuple(range(5, 11)))
    assert late.late_ns == pytest.approx(4 * MILLISECOND, rel=0.05)
    (cause,) = late.causes
    assert (cause.what, cause.longer_ns) == ("time.sleep", 4 * MILLISECOND)
