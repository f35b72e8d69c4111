"""The bytes that plans say a step communicates are those that recorded steps did, exactly."""

import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gpuprof.roofline.bus_bandwidth import find_collective
from gpuprof.roofline.plan.decoder import DecoderShape
from gpuprof.roofline.plan.layout import ParallelLayout, TrainingJob
from gpuprof.roofline.plan.transfers import stage_transfers

RECORDINGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "recordings"
GLOO = Path(__file__).parents[1] / "data" / "parallelism" / "gloo_collectives.json"
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
    batch=128,
    parameter_bytes=4,
    gradient_bytes=4,
    optimizer_bytes=0,
    activation_bytes=4,
)


def recorded(kind: str) -> list[dict[str, object]]:
    messages = msgspec.json.decode(GLOO.read_bytes())[kind]
    assert {each["dtype"] for each in messages} == {"Float"}
    assert {each["group_size"] for each in messages} == {2}
    return list(messages)


def totals(messages: list[dict[str, object]]) -> Counter[str]:
    """Bytes by collective as plans spell it."""
    found: Counter[str] = Counter()
    for each in messages:
        collective = find_collective(str(each["collective"]))
        assert collective is not None
        found[collective.name] += int(str(each["message_bytes"]))
    return found


@pytest.mark.parametrize(("kind", "zero"), [("ddp", 0), ("fsdp", 3)])
def test_gradients_and_parameters_of_two_processes(kind: str, zero: int) -> None:
    layout = ParallelLayout(data=2, zero=zero, micro_batch=64)
    planned = stage_transfers(FEED_FORWARD, FLOAT32, layout, 0)
    assert {row.kind: row.total_bytes for row in planned} == totals(recorded(kind))


def test_calls_of_fully_shard() -> None:
    layout = ParallelLayout(data=2, zero=3, micro_batch=64)
    planned = stage_transfers(FEED_FORWARD, FLOAT32, layout, 0)
    found = Counter(str(each["collective"]) for each in recorded("fsdp"))
    by_kind = {row.kind: row.calls for row in planned}
    assert by_kind == {
        "all-gather": found["_allgather_base"],
        "reduce-scatter": found["_reduce_scatter_base"],
    }


def test_activations_of_tensor_parallel_layers() -> None:
    job = replace(FLOAT32, batch=64)
    layout = ParallelLayout(tensor=2, micro_batch=64)
    layers = stage_transfers(FEED_FORWARD, job, layout, 0)[0]
    # The program has no attention: half of the messages. Its input needs no gradient, so that the
    # first layer has none backward.
    assert layers.what == "layers"
    each = layers.total_bytes // 2 // (2 * 3)
    assert [message["message_bytes"] for message in recorded("tensor")] == [each] * (3 + 2)
