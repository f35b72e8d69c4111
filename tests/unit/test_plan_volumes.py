"""The bytes that plans say a step communicates are those that recorded steps did, exactly."""

import gzip
from pathlib import Path

import msgspec
import pytest

from gpuprof.roofline.plan.decoder import DecoderShape
from gpuprof.roofline.plan.layout import ParallelLayout, TrainingJob
from gpuprof.roofline.plan.transfers import stage_transfers

RECORDINGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "recordings"
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
