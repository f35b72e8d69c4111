"""The collectives on three gloo processes: right results, and bytes sent step by step."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
from versions import needs_newer_triton

from gpuprof.reference_kernels.collectives.triton_launch import launch_shape
from gpuprof.roofline.bus_bandwidth import COLLECTIVES, bus_factor

RANKS = 3
_PROGRAM = """
import sys
import msgspec, torch, torch.distributed as dist
from gpuprof.reference_kernels.benching.coordination import Group
from gpuprof.reference_kernels.benching.run import BenchOptions, make_plans, run_plan
from gpuprof.reference_kernels.collectives.problem import CollectiveProblem
from gpuprof.reference_kernels.collectives.ring import ring_all_reduce
from gpuprof.reference_kernels.collectives.tree import tree_all_reduce
from gpuprof.reference_kernels.families import select

folder, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
device = torch.device("cpu")
group = Group(device)
seen = {"cases": [], "skipped": []}
# 12345 bytes are neither whole shares nor whole words.
sizes = [f"{name}:12345" for name in sys.argv[4:]]
for plan in make_plans(select(["collectives"]), "cpu", sizes, ["fp32", "bf16"]):
    for result in run_plan(plan, BenchOptions(device, 11, 0.01, None, group)):
        seen["cases" if hasattr(result, "error") else "skipped"].append(result)
problem = CollectiveProblem("all-reduce:1MiB", "fp32", device)
buffer = problem.input.clone()
sends = ring_all_reduce(buffer, torch.empty_like(buffer[: problem.share]))
seen["ring"] = sends
seen["message_bytes"] = problem.message_bytes
buffer = problem.input.clone()
seen["tree"] = tree_all_reduce(buffer, torch.empty_like(buffer))
seen["agreed"] = group.agree(rank + 5)
seen["largest"] = group.largest([float(rank), -1.0])
seen["nan"] = group.largest([float("nan") if rank == 1 else 0.0])
open(f"{folder}/{rank}.json", "wb").write(msgspec.json.encode(seen))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of three processes found."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(folder), str(rank), str(RANKS), *COLLECTIVES],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(RANKS)
    ]
    errors = [process.communicate(timeout=200)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * RANKS, errors
    return [msgspec.json.decode((folder / f"{rank}.json").read_bytes()) for rank in range(RANKS)]


def test_every_version_that_runs_on_a_cpu_is_right(seen: list[dict[str, Any]]) -> None:
    for rank in seen:
        assert [(c["version"], c["size"], c["error"]) for c in rank["cases"] if c["error"]] == []
        found = {(case["version"], case["size"].split(":")[0]) for case in rank["cases"]}
        assert found == {
            *(("gloo", collective) for collective in COLLECTIVES),
            ("ring", "all-reduce"),
            ("tree", "all-reduce"),
        }


def test_a_version_that_cannot_do_a_collective_is_left_out_with_a_reason(
    seen: list[dict[str, Any]],
) -> None:
    reasons = {one["reason"] for one in seen[0]["skipped"] if one["label"] == "collectives/ring"}
    assert reasons == {"it does all-reduce only"}


def test_the_ring_sends_two_shares_of_n_minus_one_n_ths(seen: list[dict[str, Any]]) -> None:
    for rank in seen:
        sent = [send["bytes"] for send in rank["ring"]]
        assert sent == [rank["message_bytes"] // RANKS] * (2 * (RANKS - 1))
        assert sum(sent) * RANKS == 2 * (RANKS - 1) * rank["message_bytes"]


def test_the_ring_goes_one_way_and_every_chunk_passes_each_link(seen: list[dict[str, Any]]) -> None:
    for number, rank in enumerate(seen):
        assert {send["destination"] for send in rank["ring"]} == {(number + 1) % RANKS}
        assert [send["step"] for send in rank["ring"]] == list(range(2 * (RANKS - 1)))
        reduced = [send["chunk"] for send in rank["ring"][: RANKS - 1]]
        assert reduced == [(number - step) % RANKS for step in range(RANKS - 1)]


def test_each_edge_of_the_tree_carries_the_message_once_up_and_once_down(
    seen: list[dict[str, Any]],
) -> None:
    edges = [
        (number, send["destination"], send["step"], send["bytes"] == rank["message_bytes"])
        for number, rank in enumerate(seen)
        for send in rank["tree"]
    ]
    # Of three ranks 1 sends to 0, then 2 does; back the other way round.
    assert sorted(edges, key=lambda edge: edge[2]) == [
        (1, 0, 0, True),
        (2, 0, 1, True),
        (0, 2, 2, True),
        (0, 1, 3, True),
    ]


def test_ranks_agree_on_what_rank_0_says_and_on_the_largest(seen: list[dict[str, Any]]) -> None:
    assert [rank["agreed"] for rank in seen] == [5] * RANKS
    assert [rank["largest"] for rank in seen] == [[2.0, -1.0]] * RANKS
    # NaN is written as null.
    assert [rank["nan"] for rank in seen] == [[None]] * RANKS


def test_the_known_work_is_that_of_the_definition(seen: list[dict[str, Any]]) -> None:
    # 12345 bytes of fp32 are 3086 elements, as whole 16-byte words for each rank 3096: 12384 B.
    found = {
        case["size"].split(":")[0]: (
            sum(part[2] if isinstance(part, list) else part["count"] for part in case["flops"]),
            case["bytes_read"],
            case["bytes_written"],
            case["bus_bytes"],
        )
        for case in seen[1]["cases"]
        if case["version"] == "gloo" and case["dtype"] == "fp32"
    }
    share, message = 12384 // 3, 12384
    assert found == {
        "all-reduce": (2 * share // 4, message, message, 2 * 2 * share),
        "all-gather": (0, share, message, 2 * share),
        "reduce-scatter": (2 * share // 4, message, share, 2 * share),
        "all-to-all": (0, message, message, 2 * share),
        # Rank 1 receives only.
        "broadcast": (0, 0, message, message),
    }


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [
        ("all-reduce", 8, 1.75),
        ("all-gather", 8, 0.875),
        ("reduce-scatter", 4, 0.75),
        ("all-to-all", 2, 0.5),
        ("broadcast", 8, 1.0),
        ("all-reduce", 1, 0.0),
        ("broadcast", 1, 0.0),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(collective: Any, ranks: int, factor: float) -> None:
    assert bus_factor(collective, ranks) == factor


@pytest.mark.parametrize("elements", [16, 4096, 2**20, 2**29])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_blocks_fit_the_signal_pad_and_the_gpu(elements: int, ranks: int) -> None:
    # torch's signal pad has 512 words.
    shape = launch_shape(elements, ranks, 512)
    assert 1 <= shape.blocks <= min(96, 512 // ranks)
    assert shape.block % (shape.warps * 32) == 0
    assert shape.block & (shape.block - 1) == 0


_COMPILE = """
import json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from gpuprof.reference_kernels.collectives import triton_kernels

name, types, constants = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
signature = {**types, "rank": "i32", **dict.fromkeys(constants, "constexpr")}
source = ASTSource(
    fn=getattr(triton_kernels, name),
    signature=signature,
    constexprs=constants,
    attrs={(position,): [["tt.divisibility", 16]] for position in range(5)},
)
compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 16})
print(compiled.asm["ptx"])
"""
_TABLES = {"buffer_table": "i64", "offset_bytes": "i32", "signal_table": "i64"}
_SHAPE = {"RANKS": 4, "BLOCK": 4096}


def compiled(
    folder: Path, name: str, types: dict[str, str], constants: Mapping[str, int] = _SHAPE
) -> str:
    """The PTX of a kernel of bf16 on four ranks."""
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    # These tests may run under Triton's interpreter, which does not compile.
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", _COMPILE, name, json.dumps(types), json.dumps(constants)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_newer_triton
@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("one_shot", {**_TABLES, "out": "*bf16", "elements": "i32"}),
        ("two_shot", {**_TABLES, "like": "*bf16", "share": "i32"}),
    ],
)
def test_the_triton_kernels_compile_with_wide_loads_and_ordered_signals(
    name: str, types: dict[str, str], tmp_path: Path
) -> None:
    code = compiled(tmp_path, name, types)
    # One load for each rank's buffer, each of 16 bytes a thread; two line-ups of four ranks.
    assert code.count("ld.global.v4.b32") == 4
    assert code.count("atom.global.release.sys.cas.b32") == 8
    assert code.count("atom.global.acquire.sys.cas.b32") == 8


@needs_newer_triton
def test_the_push_compiles_with_wide_stores_and_loads_that_no_cache_serves(tmp_path: Path) -> None:
    types = {
        "inbox_table": "i64",
        "offset_bytes": "i32",
        "source": "*i16",
        "out": "*bf16",
        "elements": "i32",
    }
    code = compiled(tmp_path, "one_shot_push", types, {**_SHAPE, "EMPTY": -(2**15)})
    # Three other ranks: a message to each; at each of four places that may be another's, a look and
    # the looks of the loop, and the word that it leaves; the result.
    assert code.count("ld.volatile.global.v4.b32") == 8
    assert code.count("st.global.v4.b32") == 3 + 4 + 1
    # The data is its own signal.
    assert "atom." not in code


_INTERPRET = """
import torch
from gpuprof.reference_kernels.collectives.triton_kernels import one_shot, two_shot

torch.manual_seed(0)
buffers = [torch.randn(1000) for _ in range(2)]
right = sum(buffer.double() for buffer in buffers)
pad = torch.zeros(16, dtype=torch.int32)
# The buffers begin 64 bytes into their allocations.
table = torch.tensor([buffer.data_ptr() - 64 for buffer in buffers])
# The other rank's pad is this one's, a word further: what rank 0 tells rank 1 comes back as if
# rank 1 had told it.
signals = torch.tensor([pad.data_ptr(), pad.data_ptr() + 4])
out = torch.full((1000,), float("nan"))
one_shot[(2,)](table.data_ptr(), 64, signals.data_ptr(), out, 1000, 0, RANKS=2, BLOCK=128)
assert torch.allclose(out.double(), right, atol=1e-6)
assert not pad.any()
before = [buffer.clone() for buffer in buffers]
two_shot[(2,)](table.data_ptr(), 64, signals.data_ptr(), buffers[0], 500, 0, RANKS=2, BLOCK=128)
for buffer, former in zip(buffers, before):
    assert torch.allclose(buffer[:500].double(), right[:500], atol=1e-6)
    assert torch.equal(buffer[500:], former[500:])
"""


_INTERPRET_PUSH = """
import torch
from gpuprof.reference_kernels.collectives.triton_kernels import one_shot_push

torch.manual_seed(0)
EMPTY = -(2**31)
count = 1000
messages = [torch.randn(count) for _ in range(2)]
# A sender's -0.0 must not read as nothing sent.
messages[0][7] = -0.0
right = sum(message.double() for message in messages)
for rank in range(2):
    # An inbox for each rank with room for both messages, 64 bytes into its allocation.
    inboxes = [torch.full((2 * count,), EMPTY, dtype=torch.int32) for _ in range(2)]
    table = torch.tensor([inbox.data_ptr() - 64 for inbox in inboxes])
    # The other's has arrived.
    inboxes[rank][(1 - rank) * count :][:count] = messages[1 - rank].view(torch.int32) + 0
    inboxes[rank][inboxes[rank] == EMPTY] = 0
    out = torch.full((count,), float("nan"))
    source = messages[rank].view(torch.int32)
    one_shot_push[(2,)](
        table.data_ptr(), 64, source, out, count, rank, RANKS=2, BLOCK=128, EMPTY=EMPTY
    )
    assert torch.allclose(out.double(), right, atol=1e-6)
    # It is empty again, and this rank's message lies in the other's.
    assert (inboxes[rank][(1 - rank) * count :][:count] == EMPTY).all()
    sent = inboxes[1 - rank][rank * count :][:count]
    assert torch.equal(sent.view(torch.float32), messages[rank])
    assert (sent != EMPTY).all()
"""


@needs_newer_triton
@pytest.mark.parametrize("program", [_INTERPRET, _INTERPRET_PUSH], ids=["signals", "push"])
def test_the_triton_kernels_sum_over_ranks_in_the_interpreter(program: str) -> None:
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stderr
