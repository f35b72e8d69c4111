"""The bytes that plans say a step communicates are those that recorded steps did, exactly."""

import gzip
from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
import pytest

from gpuprof.roofline.bus_bandwidth import find_collective
from gpuprof.roofline.plan.decoder import DecoderShape
from gpuprof.roofline.plan.layout import ParallelLayout, TrainingJob
from gpuprof.roofline.plan.transfers import stage_transfers

RECORDINGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "recordings"
RANKS = Path(__file__).parents[1] / "data" / "ranks"
# Four blocks with LayerNorm (scripts/ddp_or_fsdp_or_straggler.py), without embedding and head.
BLOCKS = DecoderShape(
    **{"layers": 4, "hidden": 2048, "heads": 16, "key_heads": 16, "head_size": 128},
    inner=5504,
    vocabulary=1,
    tied=True,
    norm_vectors=2,
)
ENDS = BLOCKS.embedding_parameters() + BLOCKS.head_parameters()


def sent(decoder: DecoderShape, layout: ParallelLayout, job: TrainingJob) -> dict[str, int]:
    """Bytes of a step by collective, without those of the embedding, the last norm and the head."""
    return {
        row.kind: row.total_bytes - ENDS * job.gradient_bytes
        for row in stage_transfers(decoder, job, layout, 0)
    }


@pytest.mark.parametrize("name", ["h200x4_ddp", "h200x4_straggler"])
def test_gradients_of_ddp(name: str) -> None:
    file = RECORDINGS / f"{name}_rank1.json.gz"
    if not file.exists():
        pytest.skip("the recordings of ../shared are absent")
    events = msgspec.json.decode(gzip.decompress(file.read_bytes()))["traceEvents"]
    steps = {each["name"] for each in events if each.get("name", "").startswith("ProfilerStep")}
    messages = [each for each in events if each.get("name") == "record_param_comms"]
    assert {each["args"]["Collective name"] for each in messages} == {"allreduce"}
    assert {each["args"]["dtype"] for each in messages} == {"BFloat16"}
    elements = sum(each["args"]["In msg nelems"] for each in messages)
    job = TrainingJob(sequence=1024, batch=16)
    layout = ParallelLayout(data=4, micro_batch=4)
    assert sent(BLOCKS, layout, job) == {"all-reduce": 2 * elements // len(steps)}


# examples/ranks/train.py: three layers of two products with biases, and nothing else.
FEED_FORWARD = DecoderShape(
    **{"layers": 3, "hidden": 256, "heads": 0, "key_heads": 1, "head_size": 0},
    inner=512,
    vocabulary=0,
    gated=False,
    mlp_bias=True,
    norm_vectors=0,
)
# 64 rows of float32 a rank.
FLOAT32 = TrainingJob(
    sequence=1,
    batch=256,
    parameter_bytes=4,
    gradient_bytes=4,
    optimizer_bytes=0,
    activation_bytes=4,
)


def recorded(kind: str) -> pl.DataFrame:
    """The collectives of one step of rank 1 of four, with `name` as plans spell it."""
    kernels = pl.read_parquet(RANKS / f"gloo4_{kind}" / "rank=1" / "kernels.parquet")
    messages = kernels.filter(pl.col("kind") == "collective").sort("start_ns")
    assert messages["dtype"].unique().to_list() == ["Float"]
    assert messages["group_size"].unique().to_list() == [4]
    spellings = {name: find_collective(name) for name in messages["collective"].unique()}
    assert all(spellings.values())
    names = {name: found.name for name, found in spellings.items() if found is not None}
    first = messages.filter(pl.col("step") == pl.col("step").min())
    return first.with_columns(pl.col("collective").replace_strict(names).alias("name"))


def totals(messages: pl.DataFrame) -> dict[str, int]:
    """Bytes by collective."""
    return dict(messages.group_by("name").agg(pl.col("message_bytes").sum()).iter_rows())


@pytest.mark.parametrize(("kind", "zero"), [("ddp", 0), ("fsdp", 3)])
def test_gradients_and_parameters_of_four_processes(kind: str, zero: int) -> None:
    layout = ParallelLayout(data=4, zero=zero, micro_batch=64)
    planned = stage_transfers(FEED_FORWARD, FLOAT32, layout, 0)
    assert {row.kind: row.total_bytes for row in planned} == totals(recorded(kind))


def test_calls_of_fully_shard() -> None:
    layout = ParallelLayout(data=4, zero=3, micro_batch=64)
    planned = stage_transfers(FEED_FORWARD, FLOAT32, layout, 0)
    calls = dict(recorded("fsdp").group_by("name").len().iter_rows())
    assert {row.kind: row.calls for row in planned} == calls


def test_activations_of_tensor_parallel_layers() -> None:
    job = replace(FLOAT32, batch=64)
    layout = ParallelLayout(tensor=4, micro_batch=64)
    layers = stage_transfers(FEED_FORWARD, job, layout, 0)[0]
    # The program has no attention: half of the messages. Its input needs no gradient, so that the
    # first layer has none backward.
    assert layers.what == "layers"
    each = layers.total_bytes // 2 // (2 * 3)
    messages = recorded("tensor")
    assert messages["name"].unique().to_list() == ["all-reduce"]
    assert messages["message_bytes"].to_list() == [each] * (3 + 2)
