"""What should be alike on all ranks and is not: a sentence each."""

from dataclasses import replace

import polars as pl
import pytest
from made_up_ranks import Idle, MadeUpRank, Work, summaries

from gpuprof.roofline.rank_figures import RankDisagreement
from gpuprof.roofline.ranks.disagreements import disagreements
from gpuprof.roofline.ranks.instances import instances

STEP = (Work(1_000_000), Work(100_000, "aten::_fused_adamw_", "[[]]", phase="optimizer"))
SCALED = (Work(10_000, "aten::_amp_foreach_non_finite_check_and_unscale_", phase="gradients"),)


def found_in(*ranks: MadeUpRank) -> tuple[RankDisagreement, ...]:
    made = summaries(*ranks)
    return disagreements(made, instances(made))


def test_ranks_that_are_alike_agree() -> None:
    environment = {"NCCL_ALGO": "Ring", "LOCAL_RANK": "0"}
    others = {"NCCL_ALGO": "Ring", "LOCAL_RANK": "1"}
    one = MadeUpRank([STEP] * 3, process={"environment": environment})
    other = MadeUpRank([STEP] * 3, process={"environment": others})
    assert found_in(one, other) == ()


@pytest.mark.parametrize(
    ("facts", "about", "sentence"),
    [
        (
            {"versions": {"torch": "2.10.0"}},
            "versions",
            "rank 2 has torch 2.10.0; the other ranks torch 2.11.0",
        ),
        (
            {"environment": {"NCCL_ALGO": "Tree"}},
            "environment",
            "rank 2 has NCCL_ALGO=Tree; the other ranks NCCL_ALGO=Ring",
        ),
        (
            {"environment": {"OMP_NUM_THREADS": "1", "NCCL_ALGO": "Ring"}},
            "environment",
            "rank 2 has OMP_NUM_THREADS=1; the other ranks no OMP_NUM_THREADS",
        ),
        (
            {"device_name": "NVIDIA H100"},
            "device",
            "rank 2 has NVIDIA H100; the other ranks NVIDIA H200",
        ),
    ],
)
def test_facts_that_differ(facts: dict[str, object], about: str, sentence: str) -> None:
    usual = {
        "versions": {"torch": "2.11.0"},
        "environment": {"NCCL_ALGO": "Ring"},
        "device_name": "NVIDIA H200",
    }
    ranks = [MadeUpRank([STEP] * 3, process=usual) for _ in range(2)]
    (found,) = found_in(*ranks, MadeUpRank([STEP] * 3, process={**usual, **facts}))
    assert (found.about, found.sentence, found.ranks) == (about, sentence, (2,))


def test_a_version_that_a_trace_does_not_say_is_no_disagreement() -> None:
    known = MadeUpRank([STEP] * 3, process={"versions": {"torch": "2.11.0"}})
    assert found_in(known, MadeUpRank([STEP] * 3)) == ()


def test_other_numbers_of_steps() -> None:
    found = found_in(MadeUpRank([STEP] * 3), MadeUpRank([STEP] * 3), MadeUpRank([STEP] * 2))
    assert [each.sentence for each in found] == [
        "rank 2 has 2 profiled steps; the other ranks 3 profiled steps"
    ]


def test_shapes_of_calls_that_are_equally_many() -> None:
    small = (Work(1_000_000, dims="[[48, 64], [64, 64]]"), STEP[1])
    (found,) = found_in(MadeUpRank([STEP] * 3), MadeUpRank([small] * 3), MadeUpRank([STEP] * 3))
    assert found.about == "shapes"
    assert found.sentence == (
        "rank 1 calls aten::mm with shapes [[48, 64], [64, 64]] where rank 0 has "
        "[[64, 64], [64, 64]]"
    )


def test_more_calls_are_no_other_shapes() -> None:
    more = (*STEP, Work(1_000_000, dims="[[4096, 4096], [4096, 4096]]", calls=20))
    assert found_in(MadeUpRank([STEP] * 3), MadeUpRank([more] * 3)) == ()


def test_an_update_that_loss_scaling_skips_on_one_rank() -> None:
    step = (*SCALED, *STEP)
    skipped = (*SCALED, STEP[0], Idle(100_000))
    (found,) = found_in(
        MadeUpRank([step, step, step]), MadeUpRank([step, skipped, step]), MadeUpRank([step] * 3)
    )
    assert (found.about, found.ranks) == ("loss scale", (1,))
    assert found.sentence.startswith("in step 1 rank 1 skipped the optimizer's update")


def test_an_update_that_all_skip_is_no_disagreement() -> None:
    step, skipped = (*SCALED, *STEP), (*SCALED, STEP[0])
    assert found_in(MadeUpRank([step, skipped]), MadeUpRank([step, skipped])) == ()


def test_stages_of_a_pipeline_send_as_often_as_their_place_asks() -> None:
    """The middle one of three sends and receives twice as often as its neighbours."""
    for name, expected in (("allreduce", 1), ("send", 0), ("recv", 0)):
        made = summaries(*[MadeUpRank([STEP] * 3)] * 3)
        end = made[1].collectives.with_columns(
            collective=pl.lit(name), sequence=pl.col("sequence") + 100
        )
        more = replace(made[1], collectives=pl.concat([made[1].collectives, end]))
        found = disagreements([made[0], more, made[2]], instances(made))
        assert len(found) == expected, name
