"""Which parallelism communication shows, on made-up ranks of known waiting and on recordings."""

from pathlib import Path

import pytest
from parallel_ranks import RankTimeline, experts, pipeline

from gpuprof.collectors import kineto, storage
from gpuprof.roofline.parallelism_figures import Exchange, Parallelism
from gpuprof.roofline.ranks.parallelism.exchanges import layers_of
from gpuprof.roofline.ranks.parallelism.find import find_parallelism
from gpuprof.roofline.ranks.summarise import summarise
from gpuprof.roofline.ranks.summary import RankSummary

RANKS = Path(__file__).parents[1] / "data" / "ranks"
RECORDINGS = Path(__file__).parents[3] / "shared" / "data" / "recordings"


def of_one(timeline: RankTimeline) -> Parallelism | None:
    return find_parallelism([timeline.summary()], timeline.rank)


@pytest.mark.parametrize(("p", "v", "m"), [(4, 1, 8), (4, 1, 4), (8, 1, 8), (4, 2, 8), (4, 3, 4)])
def test_the_bubble_of_equal_stages_is_that_of_the_formula(p: int, v: int, m: int) -> None:
    summaries = pipeline(p, v, m, forward_ns=[1_000] * p)
    found = find_parallelism(summaries, 0)
    assert found is not None
    assert found.pipeline is not None
    assert (found.pipeline.micro_batches, found.pipeline.chunks) == (m, v)
    assert found.pipeline.least_bubble == pytest.approx((p - 1) / (v * m + p - 1))
    assert found.pipeline.bubble == pytest.approx(found.pipeline.least_bubble, rel=0.01)
    # Each stage does m v passes of three times its forward pass a step.
    assert {stage.working_ns for stage in found.pipeline.stages} == {m * v * 3_000}
    assert found.data == found.sharded == found.tensor == found.experts == ()


def test_a_slow_stage_makes_the_bubble_larger_than_the_least() -> None:
    found = find_parallelism(pipeline(4, 1, 8, forward_ns=[1_000, 1_000, 1_500, 1_000]), 2)
    assert found is not None
    stages = found.pipeline
    assert stages is not None
    assert stages.bubble is not None
    assert stages.least_bubble is not None
    assert stages.bubble > 1.2 * stages.least_bubble
    busiest = max(stages.stages, key=lambda stage: stage.working_ns)
    assert busiest.rank == 2
    assert busiest.waiting_ns == min(stage.waiting_ns for stage in stages.stages)


def test_two_stages_leave_the_schedule_open() -> None:
    found = find_parallelism(pipeline(2, 1, 4, forward_ns=[1_000] * 2), 0)
    assert found is not None
    assert found.pipeline is not None
    assert (found.pipeline.micro_batches, found.pipeline.least_bubble) == (None, None)
    assert found.pipeline.bubble == pytest.approx(1 / 5)


def test_messages_that_are_waited_for_at_once_are_one_waiting() -> None:
    ranks = [RankTimeline(rank, 2) for rank in range(2)]
    for timeline in ranks:
        end = timeline.compute(0, "forward", 0, 100)
        for message in range(3):
            timeline.communicate(0, "recv", end + 10 * message, end + 300)
        timeline.communicate(0, "send", end + 300, end + 310)
        timeline.compute(0, "backward", end + 310, 90)
    found = find_parallelism([each.summary() for each in ranks], 0)
    assert found is not None
    assert found.pipeline is not None
    assert [stage.waiting_ns for stage in found.pipeline.stages] == pytest.approx([310] * 2, abs=2)


def test_a_rank_that_only_sends_is_no_stage() -> None:
    timeline = RankTimeline(0, 2)
    end = timeline.compute(0, "forward", 0, 100)
    timeline.communicate(0, "send", end, end + 10)
    assert of_one(timeline) is None


@pytest.mark.parametrize("collective", ["all_to_allv", "all_to_all"])
def test_experts_that_get_more_tokens_work_longer(collective: str) -> None:
    tokens = [100, 300, 100, 100]
    summaries = experts(tokens, collective=collective)
    found = find_parallelism(summaries, 0)
    if collective == "all_to_all":
        # Sequences may be divided so too, and nothing here is called after experts.
        assert found is None
        return
    assert found is not None
    (of_group,) = found.experts
    assert of_group.calls == 8
    assert of_group.imbalance == pytest.approx(300 / 150)
    # Two layers, forward and backward.
    assert [rank.expert_ns for rank in of_group.ranks] == [4 * 10 * count for count in tokens]
    assert [rank.total_bytes for rank in of_group.ranks] == [8 * 64 * count for count in tokens]
    # Rank 0 waits in each second one for rank 1.
    assert of_group.exposed_ns == 4 * (50 + 50 + 10 * 200)


def test_even_all_to_alls_around_modules_called_after_experts_are_theirs() -> None:
    summaries = experts([100, 100], collective="all_to_all")
    renamed = [
        RankSummary(
            each.process,
            each.steps,
            each.collectives,
            each.work.with_columns(each.work["module"].str.replace("mlp", "mlp.experts")),
        )
        for each in summaries
    ]
    found = find_parallelism(renamed, 1)
    assert found is not None
    assert found.experts[0].imbalance == 1.0


def ddp(waits_ns: int = 0, sizes: tuple[int, ...] = (1 << 20, 1 << 22)) -> RankTimeline:
    """Two steps of a forward pass and two backward halves, with a bucket after each."""
    timeline = RankTimeline(0, 2)
    at = 0
    for step in range(2):
        at = timeline.compute(step, "forward", at, 1_000)
        half = timeline.compute(step, "backward", at, 1_500)
        end = timeline.compute(step, "backward", half, 500)
        first = timeline.communicate(step, "allreduce", half, half + 400, message_bytes=sizes[0])
        assert first <= end
        # A loss that is averaged over ranks is no bucket.
        timeline.communicate(step, "allreduce", first, first, message_bytes=4)
        done = timeline.communicate(
            step, "allreduce", end, end + 700 + waits_ns, message_bytes=sizes[1]
        )
        at = timeline.compute(step, "optimizer", done, 100)
    return timeline


def test_buckets_are_hidden_by_the_backward_pass_that_is_left() -> None:
    other = ddp(waits_ns=50)
    other.rank = 1
    found = find_parallelism([ddp(waits_ns=300).summary(), other.summary()], 0)
    assert found is not None
    (data,) = found.data
    assert [bucket.message_bytes for bucket in data.buckets] == [1 << 20, 1 << 22]
    assert [bucket.backward_done for bucket in data.buckets] == [0.75, 1.0]
    # Of the rank that waits least.
    assert [bucket.duration_ns for bucket in data.buckets] == [400, 750]
    assert [bucket.exposed_ns for bucket in data.buckets] == [0, 750]
    # Nothing tells that DistributedDataParallel sends them.
    assert not data.by_ddp
    assert found.tensor == found.sharded == ()


def test_messages_that_differ_from_step_to_step_are_not_named() -> None:
    one, other = ddp(), ddp(sizes=(1 << 20, 1 << 21))
    mixed = RankTimeline(0, 2, one.work, one.collectives[:3] + other.collectives[3:])
    assert of_one(mixed) is None


def layered(*, backward: bool = True, size: int = 1 << 20) -> RankTimeline:
    """Three layers, each with an all-reduce after attention and one after the MLP, in each pass."""
    timeline = RankTimeline(0, 8)
    at = 0
    for phase in ("forward", "backward") if backward else ("forward",):
        for _ in range(3):
            for part in ("attention", "mlp"):
                at = timeline.compute(0, phase, at, 1_000, f"model.layers.*.{part}")
                at = timeline.communicate(
                    0, "allreduce", at, at + 100, group="tp", ranks=4, message_bytes=size
                )
        at = timeline.compute(0, phase, at, 1_000, "model.head")
    return timeline


@pytest.mark.parametrize("backward", [True, False], ids=["training", "inference"])
def test_activations_that_are_summed_in_the_forward_pass_are_tensor_parallel(
    backward: bool,
) -> None:
    found = of_one(layered(backward=backward))
    assert found is not None
    (group,) = found.tensor
    assert (group.group, group.ranks, group.layers) == ("tp", 4, 3)
    passes = ["forward", "backward"] if backward else ["forward"]
    assert [(each.phase, each.collective, each.calls) for each in group.exchanges] == [
        (phase, "all-reduce", 6) for phase in passes
    ]
    assert [each.total_bytes for each in group.exchanges] == [6 << 20] * len(passes)
    assert [each.exposed_ns for each in group.exchanges] == [600] * len(passes)
    assert found.data == ()


def test_one_sum_in_a_forward_pass_could_be_anything() -> None:
    timeline = RankTimeline(0, 2)
    end = timeline.compute(0, "forward", 0, 100)
    end = timeline.communicate(0, "allreduce", end, end + 10)
    timeline.compute(0, "forward", end, 100)
    assert of_one(timeline) is None


def sharded(*, prefetch: bool) -> RankTimeline:
    """Three layers gathered before each pass; with `prefetch` while the layer before computes."""
    timeline = RankTimeline(0, 4)
    at, gathered = 0, 0
    for phase in ("forward", "backward"):
        for layer in range(3):
            if not prefetch or (phase, layer) == ("forward", 0):
                gathered = timeline.communicate(0, "_allgather_base", at, at + 400)
            begun = max(at, gathered)
            at = timeline.compute(0, phase, begun, 1_000, "layers.*")
            last = (phase, layer) == ("backward", 2)
            if prefetch and not last:
                gathered = timeline.communicate(0, "_allgather_base", begun + 100, begun + 500)
            if phase == "backward":
                end = at + 300
                timeline.communicate(0, "_reduce_scatter_base", at, end)
                if not prefetch or last:
                    at = end
    timeline.compute(0, "optimizer", at, 100)
    return timeline


def test_gathers_that_are_prefetched_are_hidden() -> None:
    found, waits = of_one(sharded(prefetch=True)), of_one(sharded(prefetch=False))
    assert found is not None
    assert waits is not None

    def gathers(of: Parallelism) -> list[Exchange]:
        return [one for one in of.sharded[0].exchanges if one.collective == "all-gather"]

    assert sum(each.calls for each in gathers(found)) == 6
    assert sum(each.hidden for each in gathers(found)) == 5
    # Only the first of the step has no work beside it.
    assert sum(each.exposed_ns for each in gathers(found)) == 400
    assert sum(each.hidden for each in gathers(waits)) == 0
    assert sum(each.exposed_ns for each in gathers(waits)) == 6 * 400
    scatters = [one for one in waits.sharded[0].exchanges if one.collective == "reduce-scatter"]
    assert [(each.phase, each.calls, each.exposed_ns) for each in scatters] == [
        ("backward", 3, 900)
    ]
    assert found.tensor == found.data == ()


def test_layers_are_the_calls_of_modules_that_repeat() -> None:
    assert layers_of(layered().summary().work) == 3
    assert layers_of(ddp().summary().work) is None


def test_ranks_without_collectives_show_no_parallelism() -> None:
    timeline = RankTimeline(0, 1)
    timeline.compute(0, "forward", 0, 100)
    assert of_one(timeline) is None


@pytest.mark.parametrize("name", ["h200x4_ddp", "h200x4_straggler"])
def test_buckets_of_recorded_ranks(name: str) -> None:
    files = [RECORDINGS / f"{name}_rank{rank}.json.gz" for rank in (0, 3)]
    if not files[0].is_file():
        pytest.skip("the recordings of ../shared are absent")
    summaries = [
        summarise(kineto.read(file), rank) for file, rank in zip(files, (0, 3), strict=True)
    ]
    found = find_parallelism(summaries, 0)
    assert found is not None
    (data,) = found.data
    assert data.by_ddp
    # 202.4 million parameters in bf16; the first bucket is cut at 1 MiB, others at 25 MiB, and a
    # bucket is as large as the parameter that fills it.
    sizes = [bucket.message_bytes or 0 for bucket in data.buckets]
    assert sum(sizes) == 2 * 202_407_936
    assert len(sizes) == 11
    done = [bucket.backward_done or 0.0 for bucket in data.buckets]
    assert done == sorted(done)
    assert done[0] < 0.1
    assert done[-1] == pytest.approx(1.0)
    assert found.sharded == found.tensor == found.experts == ()
    assert found.pipeline is None


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "tensor"])
def test_parallelism_of_four_processes(kind: str) -> None:
    """examples/ranks/train.py: three layers of 262,912 float32 parameters, 64 rows of 256."""
    capture = storage.load(RANKS / f"gloo4_{kind}")
    found = find_parallelism([summarise(capture, rank) for rank in range(4)], 2)
    assert found is not None
    layer = 4 * 262_912
    assert found.pipeline is None
    assert found.experts == ()
    if kind == "ddp":
        (data,) = found.data
        assert (data.ranks, data.dtype, data.by_ddp) == (4, "Float", True)
        # The first bucket is cut at 1 MiB: one layer fills it.
        assert [bucket.message_bytes for bucket in data.buckets] == [layer, 2 * layer]
        assert found.sharded == found.tensor == ()
        return
    (group,) = found.sharded if kind == "fsdp" else found.tensor
    assert found.data == ()
    exchanges = [
        (each.phase, each.collective, each.calls, each.total_bytes) for each in group.exchanges
    ]
    if kind == "tensor":
        rows = 4 * 64 * 256
        assert group.layers == 3
        # The input of the first layer needs no gradient.
        assert exchanges == [
            ("forward", "all-reduce", 3, 3 * rows),
            ("backward", "all-reduce", 2, 2 * rows),
        ]
    else:
        assert sorted(exchanges) == [
            ("backward", "all-gather", 3, 3 * layer),
            ("backward", "reduce-scatter", 3, 3 * layer),
            ("forward", "all-gather", 3, 3 * layer),
        ]
