"""Ranks of one job: who says which they are, how they find each other, and how one that died is
named."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import polars as pl
import pytest

from gpuprof.collectors import schema, storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.manifest import Ending, Manifest, ProcessInfo
from gpuprof.collectors.opening import open_trace
from gpuprof.profiler.run import storing_server
from gpuprof.profiler.run.parts import Joined, Parts
from gpuprof.profiler.run.rank_marks import Death, RankMarks
from gpuprof.profiler.run.ranks import Ranks
from gpuprof.profiler.run.watched_rank import WatchedRank, death_of

TORCHRUN = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "MASTER_PORT": "29500"}
SRUN = {
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "8",
    "SLURM_JOB_ID": "77",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "8",
}


@pytest.mark.parametrize("environment", [TORCHRUN, SRUN, MPIRUN])
def test_a_launcher_says_which_rank_this_is(environment: Mapping[str, str]) -> None:
    ranks = Ranks.from_environment(environment)
    assert (ranks.rank, ranks.local_rank, ranks.world_size) == (5, 1, 8)
    assert not ranks.alone
    names = {name for name in environment if "RANK" in name or "PROCID" in name}
    elsewhere = Ranks.from_environment({**environment, **dict.fromkeys(names, "0")})
    # All ranks of a job have one name for it.
    assert elsewhere.job == ranks.job


def test_torchrun_on_each_node_of_a_job_counts_before_srun() -> None:
    ranks = Ranks.from_environment({**SRUN, "SLURM_PROCID": "1", "SLURM_NTASKS": "2", **TORCHRUN})
    assert (ranks.rank, ranks.world_size) == (5, 8)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"RANK": "0", "WORLD_SIZE": "1"},
        # One task in an allocation of many, and the script that sbatch itself runs.
        {**SRUN, "SLURM_PROCID": "0", "SLURM_STEP_ID": "3", "SLURM_STEP_NUM_TASKS": "1"},
        {**SRUN, "SLURM_PROCID": "0", "ENVIRONMENT": "BATCH"},
        {"RANK": "x", "WORLD_SIZE": "4"},
    ],
)
def test_a_process_by_itself_is_alone(environment: Mapping[str, str]) -> None:
    assert Ranks.from_environment(environment).alone


class BegunDistributed:
    """What a program has made of torch.distributed."""

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def get_rank(self) -> int:
        return 1

    def get_world_size(self) -> int:
        return 2


def test_ranks_that_a_program_started_itself_are_those_of_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", *SRUN, *MPIRUN):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "torch.distributed", BegunDistributed())  # type: ignore[arg-type]
    monkeypatch.delenv("MASTER_PORT", raising=False)
    # Nothing tells this job from others.
    assert Ranks.in_program().alone
    monkeypatch.setenv("MASTER_PORT", "29501")
    ranks = Ranks.in_program()
    assert (ranks.rank, ranks.local_rank, ranks.world_size) == (1, 1, 2)
    monkeypatch.setenv("MASTER_PORT", "29502")
    assert Ranks.in_program().job != ranks.job
    # Who started the process knows better.
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert Ranks.in_program() == Ranks.from_environment()


def test_jobs_and_attempts_are_told_apart() -> None:
    first = Ranks.from_environment(SRUN)
    assert Ranks.from_environment({**SRUN, "SLURM_JOB_ID": "78"}).job != first.job
    assert Ranks.from_environment({**SRUN, "SLURM_STEP_ID": "1"}).job != first.job
    assert Ranks.from_environment({**SRUN, "SLURM_RESTART_COUNT": "2"}).attempt == 2


# -- parts -----------------------------------------------------------------------------------------


def part(
    rank: int, *, world_size: int, ending: Ending = "finished", code: int | None = 0
) -> Capture:
    """What one rank stores; without an end where its ending is unknown."""
    ended_ns = None if ending == "unknown" else 100 + rank
    process = ProcessInfo(
        rank=rank,
        rank_from="content",
        world_size=world_size,
        process=1000 + rank,
        ending=ending,
        exit_code=code,
        ended_ns=ended_ns,
        exceptions=("ValueError",) if ending == "exception" else (),
    )
    manifest = Manifest(
        tool_version="0", source="gpuprof run", title="t", created_ns=1, ranks=(rank,)
    )
    step = {"rank": rank, "index": 0, "start_ns": 0, "end_ns": 9, "host_ns": 9, "phase": "timed"}
    steps = pl.DataFrame([step], schema_overrides=schema.STEPS)
    return Capture(manifest, (process,), steps=schema.conform("steps", steps))


def store(folder: Path, one: Capture) -> Parts:
    """Leave the mark and the part of a rank in `folder`."""
    (process,) = one.processes
    parts = Parts(folder / "out.gpuprof", ranks_of(process.rank, process.world_size))
    parts.begin()
    storage.save(one, parts.own)
    return parts


def ranks_of(rank: int, world_size: int) -> Ranks:
    return Ranks(rank, rank % 2, world_size, "0badcafe")


def warnings_of(joined: Joined | None) -> tuple[str, ...]:
    assert joined is not None
    return joined.capture.processes[0].warnings


def test_the_lowest_rank_joins_all_that_work_in_its_folder(tmp_path: Path) -> None:
    parts = [store(tmp_path, part(rank, world_size=3)) for rank in (2, 1, 0)]
    with parts[1].joined() as found:
        assert found is None
    with parts[2].joined() as found:
        assert found is not None
        assert found.capture.manifest.ranks == (0, 1, 2)
        assert found.elsewhere == ()
        assert warnings_of(found) == ()
    assert [*tmp_path.iterdir()] == []


def test_hosts_without_a_shared_folder_keep_their_ranks_and_merge_later(tmp_path: Path) -> None:
    hosts = [tmp_path / name for name in ("a", "b")]
    for host, ranks in zip(hosts, ((0, 1), (2, 3)), strict=True):
        host.mkdir()
        parts = [store(host, part(rank, world_size=4)) for rank in ranks]
        # The second of each host has nothing to join.
        with parts[1].joined(marks_patience_s=0.05) as found:
            assert found is None
        with parts[0].joined(marks_patience_s=0.05) as found:
            assert found is not None
            assert found.capture.manifest.ranks == ranks
            assert found.elsewhere == tuple(sorted({0, 1, 2, 3} - {*ranks}))
            storage.save(found.capture, host / "out.gpuprof")
        assert [path.name for path in host.iterdir()] == ["out.gpuprof"]

    merged = open_trace(tmp_path)
    assert merged.manifest.ranks == (0, 1, 2, 3)
    assert {process.world_size for process in merged.processes} == {4}
    assert merged.processes[0].warnings == ()
    # Copied beside each other they may not have one name.
    for host in hosts:
        shutil.move(host / "out.gpuprof", tmp_path / f"{host.name}.gpuprof")
        host.rmdir()
    assert open_trace(tmp_path).manifest.ranks == (0, 1, 2, 3)


def test_a_rank_that_died_is_named_with_how_and_nobody_waits_for_it(tmp_path: Path) -> None:
    parts = store(tmp_path, part(0, world_size=4))
    store(tmp_path, part(1, world_size=4, ending="unknown", code=None))
    for rank, death in ((1, Death(signal=signal.SIGKILL)), (2, Death(exit_code=3)), (3, Death())):
        marks = RankMarks(tmp_path / "out.gpuprof", ranks_of(rank, 4))
        marks.begin()
        marks.write_death(death)
    # With the usual patience: the deaths end it.
    with parts.joined() as found:
        assert found is not None
        assert [process.ending for process in found.capture.processes] == ["finished", "killed"]
        assert found.capture.processes[1].exit_code == -signal.SIGKILL
    assert warnings_of(found) == (
        "rank 1 was killed by SIGKILL: only its profiled steps are here",
        "rank 2 ended with exit code 3, past all that ends a Python program: nothing of it is here",
        "rank 3 ended without a word, killed or crashed: nothing of it is here",
    )
    assert [*tmp_path.iterdir()] == []


def test_a_rank_that_failed_by_itself_is_named_and_those_that_were_ended_are_not(
    tmp_path: Path,
) -> None:
    parts = store(tmp_path, part(0, world_size=3, ending="sigterm", code=143))
    store(tmp_path, part(1, world_size=3, ending="exception", code=1))
    store(tmp_path, part(2, world_size=3, ending="sigterm", code=143))
    with parts.joined(first_come=True) as found:
        assert warnings_of(found) == ("rank 1 ended with ValueError (exit code 1)",)


def test_a_rank_that_goes_on_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    parts = store(tmp_path, part(0, world_size=2))
    store(tmp_path, part(1, world_size=2, ending="unknown", code=None))
    with parts.joined(0.1) as found:
        assert warnings_of(found) == (
            "rank 1 did not end in the time that rank 0 waited for it: only its profiled steps "
            "are here",
        )


def test_captures_of_two_jobs_are_not_joined(tmp_path: Path) -> None:
    for name in ("first", "second"):
        storage.save(part(0, world_size=1), tmp_path / f"{name}.gpuprof")
    with pytest.raises(CaptureError, match=r"first.gpuprof and second.gpuprof both hold rank 0"):
        open_trace(tmp_path)


def test_a_damaged_capture_of_one_host_is_left_out_and_named(tmp_path: Path) -> None:
    for rank in (0, 1):
        storage.save(part(rank, world_size=2), tmp_path / f"host{rank}" / "out.gpuprof")
    (tmp_path / "host1" / "out.gpuprof" / storage.MANIFEST_FILE).write_text("{")
    capture = open_trace(tmp_path)
    assert capture.manifest.ranks == (0,)
    assert "left out: host1/out.gpuprof: " in capture.processes[0].warnings[0]


# -- how a process ended ---------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux tells of other processes")
@pytest.mark.parametrize(
    ("code", "death"),
    [
        ("os.kill(os.getpid(), 9)", Death(signal=9)),
        ("os.kill(os.getpid(), 11)", Death(signal=11)),
        ("os._exit(7)", Death(exit_code=7)),
    ],
)
def test_the_end_of_a_process_is_seen_before_its_parent_asks(
    code: str, death: Death, tmp_path: Path
) -> None:
    marks = RankMarks(tmp_path / "out.gpuprof", ranks_of(1, 2))
    child = subprocess.Popen([sys.executable, "-S", "-c", f"import os; input(); {code}"],
                             stdin=subprocess.PIPE)  # fmt: skip
    watched = WatchedRank(marks, child.pid)
    watched.begin()
    assert marks.visible() == {1}
    assert marks.death(1) is None
    assert child.stdin is not None
    child.stdin.write(b"\n")
    child.stdin.close()
    watched.write_death()
    assert marks.death(1) == death
    child.wait()
    # Nothing is made up where nobody can tell any more.
    assert death_of(child.pid) == Death()
    assert death_of(os.getpid()) == Death()


def test_a_program_that_was_killed_with_an_answer_unread_has_ended() -> None:
    program, server = socket.socketpair()
    with server:
        server.send(b"an answer")
        program.close()
        assert storing_server._next(server, None) is None


def test_a_death_that_is_half_written_is_none_yet(tmp_path: Path) -> None:
    marks = RankMarks(tmp_path / "out.gpuprof", ranks_of(1, 2))
    marks.beside("rank1.died").write_bytes(msgspec.json.encode(Death(signal=9))[:5])
    assert marks.death(1) is None
