"""Logs of NCCL: communicators, transports, algorithms, warnings, and who entered which collective.

The lines are written here by the formats of NCCL's sources (`collectors/nccl_log/patterns.py`).
"""

import gzip
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuprof.collectors import nccl_log
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.host_identity import host_identity
from gpuprof.collectors.opening import open_trace, open_traces
from gpuprof.reports.markdown import render_markdown
from gpuprof.reports.sections.recorder import stuck_sentence
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.nccl_figures import NcclFigures
from gpuprof.roofline.ranks.nccl import nccl_figures
from gpuprof.roofline.ranks.recorder import recorder_findings
from gpuprof.roofline.ranks.summarise import all_summaries

DATA = Path(__file__).parents[1] / "data"
IDENTITY = "0x52e965372ad155ed"


def lines_of(
    rank: int,
    *,
    ranks: int = 4,
    hosts: int = 1,
    calls: int = 3,
    gdr: bool = True,
    ends: bool = True,
    version: str = "2.27.7",
) -> Iterator[str]:
    """What one rank of a job logs, of NCCL 2.27; a host has `ranks` / `hosts` of them."""
    local = rank % (ranks // hosts)
    head = f"node-{rank // (ranks // hosts)}:{500 + rank}:{500 + rank} [{local}] NCCL INFO"
    thread = head.replace(f":{500 + rank} [", f":{900 + rank} [")
    comm = f"comm 0x55d7869cef{rank:02x} rank {rank} nranks {ranks} cudaDev {local} nvmlDev {local}"
    comm += f" busId 10{local}c0 commId {IDENTITY}"
    pointer = f"0x55d7869cef{rank:02x}"
    successor, predecessor = (rank + 1) % ranks, (rank - 1) % ranks
    yield f"{head} Bootstrap: Using ens32:172.31.3.153<0>"
    yield f"{head} NCCL version {version}+cuda13.0"
    yield "epoch 1 | loss 3.14"
    yield f"{thread} NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB ens32:10.0.0.1<0>"
    yield f"{thread} Using network IB"
    yield f"{thread} ncclCommInitRankConfig {comm} - Init START"
    yield f"{thread} NCCL_CROSS_NIC set by environment to 1."
    yield f"{thread} NVLS multicast support is available on dev {local} (NVLS_NCHANNELS 16)"
    yield (
        f"{thread} comm {pointer} rank {rank} nRanks {ranks} nNodes {hosts} "
        f"localRanks {ranks // hosts} localRank {local} MNNVL 0"
    )
    yield f"{thread} Channel 00/24 : {' '.join(str(each) for each in range(ranks))}"
    yield f"{thread} Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1"
    yield (
        f"{thread} 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, "
        "32 p2p channels per peer"
    )
    if ends:
        yield f"{thread} ncclCommInitRankConfig {comm} - Init COMPLETE"
    other = head.replace(f":{500 + rank} [", f":{700 + rank} [")
    for channel in range(2):
        near = rank // (ranks // hosts) == successor // (ranks // hosts)
        via = "P2P/CUMEM/read" if near else f"NET/IB/{channel}{'/GDRDMA' if gdr else ''}"
        way = "" if near else " [send]"
        yield (f"{other} Channel {channel:02}/0 : {rank}[{local}] -> {successor}[0]{way} via {via}")
        if predecessor // (ranks // hosts) != rank // (ranks // hosts):
            yield (
                f"{other} Channel {channel:02}/0 : {predecessor}[1] -> {rank}[{local}] [receive] "
                f"via NET/IB/{channel}{'/GDRDMA' if gdr else ''}/Shared"
            )
    yield f"{other} Connected all rings, use ring PXN 0 GDR 1"
    for number in range(calls):
        yield (
            f"{head} AllReduce: opCount {number:x} sendbuff 0x7fb2 recvbuff 0x7fb2 acc (nil) "
            f"count 1048576 datatype 9 op 0 root 0 comm {pointer} [nranks={ranks}] stream 0x5 "
            f"task 0 globalrank {rank}"
        )
        if rank == 0:
            yield (
                f"{head} AllReduce: 2097152 Bytes -> Algo TREE proto LL128 "
                "channel{Lo..Hi}={0..23}"
            )
    if rank == 0:
        yield f"{head} AllGather: 1024 Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..1}}"
        yield f"{head} 4096 Bytes -> Kernel AllReduce_RSxLDMC_AGxSTMC nchannels 16 nthreads 512"


def log(folder: Path, *ranks: Iterator[str]) -> Path:
    """One file with the lines of `ranks` in turns, as a launcher writes them."""
    left = [list(lines) for lines in ranks]
    turns = []
    while any(left):
        turns += [lines.pop(0) for lines in left if lines]
    file = folder / "train.log"
    file.write_text("\n".join(["starting", *turns, "done"]))
    return file


def figures(capture: Capture) -> NcclFigures:
    found = nccl_figures(all_summaries(capture))
    assert found is not None
    return found


def test_all_ranks_of_one_log(tmp_path: Path) -> None:
    capture = open_trace(log(tmp_path, *(lines_of(rank) for rank in range(4))))
    assert capture.manifest.ranks == (0, 1, 2, 3)
    # Of names only what tells hosts apart is kept.
    assert {process.host for process in capture.processes} == {host_identity("node-0.example")}
    assert host_identity("node-0") != host_identity("node-1")
    assert {process.fingerprint.nccl for process in capture.processes} == {"2.27.7"}
    (one,) = figures(capture).communicators
    assert (one.identity, one.size, one.ranks) == (IDENTITY, 4, (0, 1, 2, 3))
    assert (one.hosts, one.version, one.network) == (1, "2.27.7", "IB")
    assert one.network_devices == ("mlx5_0:1/IB", "mlx5_1:1/RoCE")
    assert (one.channels, one.nvls_channels, one.rings, one.trees) == (24, 16, 24, 2)
    assert one.nvls is True
    assert (one.not_initialised, one.differences) == ((), ())
    (transport,) = one.transports
    assert (transport.name, transport.connections) == ("P2P/CUMEM/read", 8)
    assert transport.gpu_direct is None
    assert figures(capture).settings == ("NCCL_CROSS_NIC=1",)
    chosen = {(each.collective, each.message_bytes): (each.text, each.calls) for each in one.chosen}
    assert chosen == {
        ("all-reduce", 2097152): ("tree LL128", 3),
        # NCCL counts a rank's share of an all-gather.
        ("all-gather", 4096): ("ring Simple", 1),
        ("all-reduce", 4096): ("RSxLDMC_AGxSTMC", 1),
    }
    # Of bfloat16, 2 bytes each.
    assert capture.collective_records["message_bytes"].unique().to_list() == [2 * 1048576]
    # All entered the same: nothing says that any is stuck.
    analysis = analyze(capture)
    assert analysis.recorder is not None
    assert analysis.recorder.stuck == ()
    page = render_markdown(analysis).replace("\\", "")
    assert "8 connections by P2P/CUMEM/read" in page
    assert "tree LL128" in page


def test_transports_over_hosts_say_whether_the_network_reads_the_gpu(tmp_path: Path) -> None:
    ranks = (lines_of(rank, ranks=4, hosts=2, gdr=rank != 3) for rank in range(4))
    (one,) = figures(open_trace(log(tmp_path, *ranks))).communicators
    assert one.hosts == 2
    told = {(each.name, each.gpu_direct): (each.connections, each.ranks) for each in one.transports}
    assert told == {
        ("P2P/CUMEM/read", None): (4, (0, 2)),
        # Rank 1 sends to 2, 2 receives; 0 receives from 3, which does both without.
        ("NET/IB", True): (6, (0, 1, 2)),
        ("NET/IB", False): (2, (3,)),
    }
    page = render_markdown(analyze(open_trace(tmp_path))).replace("\\", "")
    assert "NET/IB without GPUDirect RDMA" in page


def test_ranks_that_differ_and_do_not_finish(tmp_path: Path) -> None:
    ranks = [lines_of(0), lines_of(1), lines_of(2, version="2.28.9"), lines_of(3, ends=False)]
    capture = open_trace(log(tmp_path, *ranks))
    (one,) = figures(capture).communicators
    assert one.not_initialised == (3,)
    assert one.version == ""
    assert one.differences == ("version: 2.27.7 on ranks 0-1, 3; 2.28.9 on rank 2",)
    page = render_markdown(analyze(capture)).replace("\\", "")
    assert f"nitialisation of {IDENTITY} did not end on ranks 3" in page


def test_the_rank_that_has_not_entered_is_named(tmp_path: Path) -> None:
    ranks = [lines_of(0, calls=9), lines_of(1, calls=9), lines_of(2, calls=7), lines_of(3, calls=9)]
    findings = recorder_findings(all_summaries(open_trace(log(tmp_path, *ranks))))
    assert findings is not None
    (stuck,) = findings.stuck
    assert (stuck.sequence, stuck.waiting, stuck.not_entered) == (7, (0, 1, 3), (2,))
    assert not stuck.ends_recorded
    said = stuck_sentence(stuck)
    assert "ranks 0-1, 3 have entered AllReduce #7" in said
    assert "rank 2 has not entered it: the last of rank 2 is AllReduce #6" in said
    assert "waits" not in said
    assert "the log does not say which collectives ended" in said


def test_timeouts_of_torch_s_watchdog(tmp_path: Path) -> None:
    lines = [*lines_of(0, calls=0), *lines_of(1, calls=0)]
    lines += [
        f"[rank{rank}]:[E1218 20:27:21.4 ProcessGroupNCCL.cpp:629] [PG ID 0 PG GUID "
        f"0(default_pg) Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL("
        "SeqNum=11, OpType=ALLREDUCE, NumelIn=131072000, NumelOut=131072000, "
        "Timeout(ms)=600000) ran for 600081 milliseconds before timing out."
        for rank in (0, 1)
    ]
    findings = recorder_findings(all_summaries(open_trace(log(tmp_path, iter(lines)))))
    assert findings is not None
    (stuck,) = findings.stuck
    assert (stuck.sequence, stuck.waiting) == (11, (0, 1))
    assert stuck.calls[0].collective == "allreduce"
    assert "ranks 0-1 wait in allreduce #11" in stuck_sentence(stuck)


def test_warnings_and_other_spellings(tmp_path: Path) -> None:
    """Of RCCL, which writes the communicator behind each line, and of a plug-in's warnings."""
    lines = [
        "TARS:8:9 [0] NCCL INFO NET/IB : Using [RO]; OOB eno1:10.0.20.2<0>",
        "TARS:8:9 [0] NCCL INFO ncclCommInitRankConfig_impl comm 0x2bc rank 0 nranks 2 cudaDev 0 "
        "nvmlDev 0 busId 3000 commId 0xcd - Init START",
        "[2026-01-02 10:24:27] TARS:8:9 [0] int create(x**):208 NCCL WARN NET/OFI failed",
        "[2026-01-02 10:24:28] TARS:8:9 [0] int create(x**):208 NCCL WARN NET/OFI failed",
        "TARS:8:9 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 comm 0x2bc nRanks 02 busId 3000",
        "TARS:8:9 [0] NCCL INFO Channel 00/0 : 0[3000] -> 1[d000] via P2P/IPC comm 0x2bc nRanks 02",
        "TARS:8:9 [0] NCCL INFO comm:0x2bc, nRanks:2, nNodes:1, coll channels:2 collnet "
        "channels:2, nvls channels:0, p2p channels:2, p2p channels per peer:2",
    ]
    capture = open_trace(log(tmp_path, iter(lines)))
    found = figures(capture)
    (one,) = found.communicators
    assert (one.channels, one.nvls_channels, one.trees, one.network_devices) == (2, 0, 1, ())
    assert [each.name for each in one.transports] == ["P2P/IPC"]
    assert [(each.text, each.ranks) for each in found.warnings] == [("NET/OFI failed", (0,))]
    assert one.not_initialised == (0,)


def test_several_communicators_share_no_connections(tmp_path: Path) -> None:
    pair = [line.replace("0x55d7869cef", "0x77d7869cef") for line in lines_of(0, ranks=2, calls=0)]
    pair = [line.replace(IDENTITY, "0x99") for line in pair]
    capture = open_trace(log(tmp_path, iter([*lines_of(0, calls=0), *pair])))
    found = {one.identity: one for one in figures(capture).communicators}
    # The first connects while it is alone; of the later lines nothing tells which they are of.
    assert found[IDENTITY].transports[0].connections == 2
    assert found["0x99"].transports == ()
    assert found[""].transports[0].connections == 2


def test_beside_a_trace_it_becomes_part_of_its_rank(tmp_path: Path) -> None:
    trace = next(iter(sorted((DATA / "kineto").glob("h100_*.json.gz"))))
    shutil.copy(trace, tmp_path / "rank0.json.gz")
    file = log(tmp_path, lines_of(0), lines_of(1))
    capture = open_traces([tmp_path / "rank0.json.gz", file])
    assert capture.manifest.ranks == (0, 1)
    assert capture.manifest.source.startswith("kineto")
    assert not capture.rank(0).kernels.is_empty()
    assert figures(capture).communicators[0].ranks == (0, 1)
    # As one of the files of a folder, compressed.
    file.with_suffix(".gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    assert figures(open_trace(tmp_path)).communicators[0].ranks == (0, 1)


@pytest.mark.parametrize(
    "text",
    [
        "host:1:2 [0] NCCL INFO Launch mode Parallel\n  4  1 float sum 34.73\n",
        "host:1:2 [0] NCCL INFO NCCL version 2.27.7+cuda13.0\n",
    ],
)
def test_a_log_without_a_communicator_is_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_text(text)
    with pytest.raises(CaptureError, match="without a communicator") as raised:
        open_trace(file)
    assert "\n" not in str(raised.value)


def test_damaged_logs_are_read_or_refused(tmp_path: Path) -> None:
    whole = log(tmp_path, *(lines_of(rank, hosts=2) for rank in range(4))).read_bytes()
    rng = random.Random(3)
    file = tmp_path / "damaged.log"
    for _ in range(40):
        content = bytearray(whole[: rng.randint(2000, len(whole))])
        for _ in range(rng.randint(1, 60)):
            content[rng.randrange(len(content))] = rng.choice(b"0123456789 \n:x[]-\xff")
        file.write_bytes(bytes(content))
        try:
            capture = open_trace(file)
        except CaptureError:
            continue
        assert nccl_figures(all_summaries(capture)) is None or figures(capture).communicators


def test_a_megabyte_without_a_space_is_no_log() -> None:
    """A row of a table: each byte of it began a search to the end, 50 s for one."""
    assert not nccl_log.recognises(b"x" * (1 << 20) + b"\n")
    assert not nccl_log.recognises(b"1:2:3" * (1 << 18) + b"\n")
