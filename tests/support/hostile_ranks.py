"""Damaged files about ranks: summaries stored with a capture, logs of NCCL."""

import io
import random
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl
from hostile_reader import AWARE
from made_up_ranks import Idle, MadeUpRank, Work, summaries
from mutations import damaged_bytes, damaged_frame, damaged_json

from gpuprof.profiler.cluster.analysis import analyze_of_job
from gpuprof.profiler.cluster.job import JOB_FILE, Job, encode_job, read_job_file
from gpuprof.profiler.cluster.ranks_of_files import FileRank, JobRank
from gpuprof.roofline.ranks.summary import joined_parts, parts_of

_HEAD: Final = "node-{host}:{pid}:{pid} [{rank}] NCCL INFO "
_COMM: Final = "comm 0x55d7{rank} rank {rank} nranks 2 cudaDev {rank} commId 0x52"
_LOG: Final = f"""NCCL version 2.27.7+cuda13.0
NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB ens32:10.0.0.1<0>
Using network IB
ncclCommInitRankConfig {_COMM} - Init START
NCCL_CROSS_NIC set by environment to 1.
NVLS multicast support is available on dev {{rank}} (NVLS_NCHANNELS 16)
comm 0x55d7{{rank}} rank {{rank}} nRanks 2 nNodes 1 localRanks 2 localRank {{rank}} MNNVL 0
Channel 00/24 : 0 1
Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1
24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per x
ncclCommInitRankConfig {_COMM} - Init COMPLETE
Channel 00/0 : {{rank}}[0] -> 1[0] [send] via NET/IB/0/GDRDMA
Channel 01/0 : 1[1] -> {{rank}}[0] via P2P/CUMEM/read
AllReduce: opCount 1 sendbuff 7 recvbuff 7 count 1024 datatype 9 op 0 comm 0x55d7{{rank}} [nranks=2]
AllReduce: 2097152 Bytes -> Algo TREE proto LL128 channel{{{{Lo..Hi}}}}={{{{0..23}}}}
4096 Bytes -> Kernel AllReduce_RSxLDMC_AGxSTMC nchannels 16 nthreads 512"""
_TIMEOUT: Final = (
    "[rank1]:[E] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, "
    "OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600011 milliseconds"
)


def nccl_logs() -> list[bytes]:
    """One of two ranks, with a collective that timed out."""
    lines = [
        (_HEAD + line).format(host=0, pid=500 + rank, rank=rank)
        for rank in range(2)
        for line in _LOG.splitlines()
    ]
    return ["\n".join(("epoch 1", *lines, _TIMEOUT, "done")).encode()]


@lru_cache(maxsize=1)
def _job() -> bytes:
    made = summaries(
        MadeUpRank(((Work(1_000_000), Idle(10_000)),) * 3, offset_ns=1_000),
        MadeUpRank(((Work(2_000_000),),) * 3, offset_ns=5_000),
        named=True,
    )
    ranks = tuple(JobRank(FileRank(f"rank{each.rank}.json", 0), each) for each in made)
    return encode_job(Job("made up", ranks, ("left out: junk.log",)))


def write_job(chance: random.Random, capture: Path) -> None:
    """A damaged file of summaries into the folder `capture`."""
    content = _job()
    if chance.random() >= AWARE:
        content = damaged_bytes(chance, content)
    else:
        tree = msgspec.msgpack.decode(content)
        rank = chance.choice(tree["ranks"])
        if chance.random() < 0.75:
            rank["summary"] = _damaged_summary(chance, rank["summary"])
        else:
            _damage_field(chance, chance.choice((tree, rank)))
        content = msgspec.msgpack.encode(tree)
    (capture / JOB_FILE).write_bytes(content)


def _damage_field(chance: random.Random, tree: dict[str, Any]) -> None:
    name = chance.choice(sorted(tree))
    tree[name] = chance.choice((None, -1, 1 << 62, "x", "\x1b[31m", [], {}, b"\xff", 1.5))


def _damaged_summary(chance: random.Random, content: bytes) -> bytes:
    parts = parts_of(content)
    place = chance.randrange(len(parts))
    if place == 0:
        parts[0] = damaged_json(chance, parts[0])
    else:
        buffer = io.BytesIO()
        try:
            frame = damaged_frame(chance, pl.read_parquet(io.BytesIO(parts[place])))
            frame.write_parquet(buffer, compression="zstd")
            parts[place] = buffer.getvalue()
        except pl.exceptions.PolarsError:
            parts[place] = damaged_bytes(chance, parts[place])
    return joined_parts(parts)


def use_job(capture: Path, stored: Any) -> None:
    """What is said across the ranks in the folder `capture`, of which `stored` is one."""
    analyze_of_job(read_job_file(capture), stored)
