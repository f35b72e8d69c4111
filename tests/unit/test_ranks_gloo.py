"""Real trainings of 2 and 4 ranks with gloo (tests/data/ranks): collectives, and who came last."""

from functools import cache
from pathlib import Path

import polars as pl
import pytest

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.ranks.instances import instances
from gpuprof.roofline.ranks.summarise import summarise

RECORDINGS = Path(__file__).parents[1] / "data" / "ranks"
NAMES = sorted(path.name for path in RECORDINGS.glob("gloo*"))
WIDTH, LAYERS, BATCH, FLOAT_BYTES, STEPS = 256, 3, 64, 4, 3
LAYER_BYTES = FLOAT_BYTES * (2 * 2 * WIDTH * WIDTH + 3 * WIDTH)
# What one step of each calls on each rank, as its own arithmetic has it: kind -> messages in bytes.
# FSDP gathers each layer forward and backward, but those that were not resharded.
CALLED = {
    "ddp": {"allreduce": LAYERS * LAYER_BYTES},
    "fsdp": {
        "_allgather_base": 2 * LAYERS * LAYER_BYTES,
        "_reduce_scatter_base": LAYERS * LAYER_BYTES,
    },
    # After each layer forward, and before each but the first backward.
    "tensor": {"allreduce": (2 * LAYERS - 1) * BATCH * WIDTH * FLOAT_BYTES},
}


@cache
def load(name: str) -> Capture:
    return storage.load(RECORDINGS / name)


@cache
def instances_of(name: str) -> pl.DataFrame:
    capture = load(name)
    return instances([summarise(capture, rank) for rank in capture.manifest.ranks])


# Of the last rank, as the lines of examples/ranks/train.py were when it was recorded.
CAUSES = {
    "work": ("more work", "aten::mm", "train.py:80"),
    "loader": ("idle", "next batch of a DataLoader", "train.py:104"),
    "sleep": ("idle", "Python between operators", "train.py:109"),
}
EXTRA_PRODUCTS, FAULT_NS = 40, 100_000_000


def collectives(capture: Capture) -> pl.DataFrame:
    return capture.kernels.filter(pl.col("kind") == "collective")


@pytest.mark.parametrize("name", NAMES)
def test_the_collectives_of_each_step_are_those_that_its_parallelism_needs(name: str) -> None:
    capture = load(name)
    ranks, how = int(name[4]), name.split("_")[1]
    found = collectives(capture)
    assert capture.manifest.ranks == tuple(range(ranks))
    assert set(found["group_size"]) == {ranks}
    assert found["sequence"].null_count() == 0
    sums = found.group_by("rank", "step", "collective").agg(pl.col("message_bytes").sum())
    expected = {
        (rank, step, kind): size
        for kind, size in CALLED[how].items()
        for rank in range(ranks)
        for step in sorted(set(found["step"]))
    }
    assert {(a, b, c): size for a, b, c, size in sums.iter_rows()} == expected
    assert len(expected) == ranks * STEPS * len(CALLED[how])


@pytest.mark.parametrize("name", NAMES)
def test_every_collective_is_matched_over_all_ranks(name: str) -> None:
    found = instances_of(name)
    assert found.height == collectives(load(name)).height
    # All ranks have the nth of a group at the same place of their steps.
    distinct = found.group_by("instance").agg(pl.col("step", "message_bytes").n_unique())
    assert distinct.select("step", "message_bytes").unique().rows() == [(1, 1)]


@pytest.mark.parametrize("name", [name for name in NAMES if name.count("_") == 2])
def test_the_rank_with_a_fault_is_named_with_its_cause(name: str) -> None:
    capture = load(name)
    found = analyze(capture).ranks
    assert found is not None
    (straggler,) = [each for each in found.stragglers if each.pattern == "persistent"]
    assert straggler.rank == max(capture.manifest.ranks)
    assert straggler.waiting == capture.manifest.ranks[:-1]
    cause = straggler.causes[0]
    assert (cause.kind, cause.what, cause.place) == CAUSES[name.split("_")[2]]
    if "work" in name:
        assert (cause.calls, cause.usual_calls) == (EXTRA_PRODUCTS, 0)
    else:
        assert cause.nanoseconds == pytest.approx(FAULT_NS, rel=0.1)
    # Without it a step is shorter, and still one.
    assert 0 < straggler.step_without_ns < straggler.step_ns


@pytest.mark.parametrize("name", ["gloo4_ddp", "gloo4_tensor"])
def test_without_a_fault_nobody_is_named(name: str) -> None:
    found = analyze(load(name)).ranks
    assert found is not None
    assert found.stragglers == ()


def test_each_dimension_of_a_mesh_has_groups_of_its_own() -> None:
    """Two times two ranks: ranks 0 and 2 shard what 0 and 1 hold a half of each."""
    found = instances_of("mesh4")
    assert found.height == collectives(load("mesh4")).height
    members = found.group_by("instance", "collective").agg(pl.col("rank").sort())
    by_kind = {
        kind: {tuple(ranks) for ranks in rows["rank"]}
        for (kind,), rows in members.group_by("collective")
    }
    across, within = {(0, 2), (1, 3)}, {(0, 1), (2, 3)}
    assert by_kind == {
        "_allgather_base": across,
        "_reduce_scatter_base": across,
        "allreduce": within,
    }


@pytest.mark.parametrize("name", ["gloo4_ddp_sleep", "gloo2_fsdp_loader", "gloo4_tensor"])
def test_waiting_for_others_is_communication_and_not_the_host_s(name: str) -> None:
    capture = load(name)
    analysis = analyze(capture, rank=0)
    assert analysis.split is not None
    assert analysis.exposed is not None
    parts = {part.kind: part.nanoseconds for part in analysis.split.parts}
    waits = parts.get("other rank", 0)
    # The union of what gloo's threads did, without what the program computed meanwhile.
    own = capture.rank(0).kernels.filter(pl.col("step").is_not_null())
    timeline = covered(
        own.filter(pl.col("kind") == "collective"), own.filter(pl.col("kind") == "op")
    )
    assert parts["communication"] + waits == pytest.approx(timeline / STEPS, rel=0.01)
    if "tensor" not in name:
        assert waits > 50_000_000


def covered(rows: pl.DataFrame, without: pl.DataFrame) -> int:
    """Nanoseconds in which one of `rows` runs and none of `without`, event by event."""
    edges = [
        (time, kind, change)
        for kind, frame in (("in", rows), ("out", without))
        for start, end in frame.select("start_ns", "end_ns").iter_rows()
        for time, change in ((start, 1), (end, -1))
    ]
    running = {"in": 0, "out": 0}
    total, last = 0, 0
    for time, kind, change in sorted(edges):
        if running["in"] and not running["out"]:
            total += time - last
        running[kind] += change
        last = time
    return total
