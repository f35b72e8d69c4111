"""Files read on workers: lost workers, failures, and files that are at fault themselves."""

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask

# Its defaults are there before `dask.config.set` puts one beside them, and takes it away again.
import distributed  # noqa: F401
import msgspec
import pytest
import worker_reads
from synthetic_ranks import WRONG_CLOCK_NS, Planted, write_ranks

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.opening import open_trace
from gpuprof.profiler.captures import load_analysis
from gpuprof.profiler.cli import main
from gpuprof.profiler.cluster.analysis import (
    Workers,
    analyze_of_job,
    capture_of_rank,
    read_job,
)
from gpuprof.profiler.cluster.here import read_here
from gpuprof.profiler.cluster.job import JOB_FILE, encode_job, read_job_file
from gpuprof.profiler.cluster.places import files_of_ranks
from gpuprof.profiler.cluster.workers import (
    local_workers,
    lost_workers,
    read_on_workers,
    workers_of,
)
from gpuprof.profiler.step_range import with_steps
from gpuprof.profiler.traces import read_run
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.rank_figures import RanksAnalysis
from gpuprof.roofline.ranks.instances import instances
from gpuprof.roofline.ranks.join import join
from gpuprof.roofline.ranks.summarise import summarise

DATA = Path(__file__).resolve().parents[1] / "data/ranks"
KINETO = DATA.parent / "kineto"
FINE = tuple(f"file {number}" for number in range(8))
FAULTS = ("kills", "kills once", "fails once", "fails", "damaged")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    # Each worker that is lost takes a second to start again.
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        local_workers(1) as client,
    ):
        yield client


def test_what_workers_read_and_what_they_cannot(client: Any, tmp_path: Path) -> None:
    for name in (*FINE, *FAULTS):
        (tmp_path / name).write_text(name)
    places = [str(tmp_path / name) for name in (*FAULTS, *FINE)]
    outcomes = {
        Path(each.place).name: each for each in read_on_workers(worker_reads.read, places, client)
    }
    assert set(outcomes) == {*FINE, *FAULTS}
    read = {name for name, each in outcomes.items() if each.summaries}
    assert read == {*FINE, "kills once", "fails once"}
    assert all(outcomes[name].summaries[0] == name.encode() for name in read)
    assert {name: outcomes[name].problem for name in FAULTS if name not in read} == {
        "kills": "each worker that read it was lost",
        "fails": "no route to host",
        "damaged": "byte 7: no events",
    }
    lost = [{Path(place).name for place in places} for places in lost_workers(client)]
    assert any("kills once" in names for names in lost)
    assert sum("kills" in names for names in lost) > 1


def test_a_worker_takes_one_core_and_keeps_nothing_of_its_tasks(client: Any) -> None:
    # As a task, which waits for a worker: one that was killed may not be there again yet.
    costly = client.submit(worker_reads.what_is_costly, pure=False)
    assert costly.result(timeout=120) == (1, [])


def test_a_cluster_that_runs_is_found_by_its_address(client: Any, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("content")
    with workers_of(client.scheduler.address) as other:
        (outcome,) = read_on_workers(worker_reads.read, [str(file)], other)
    assert outcome.summaries[0] == b"content"


def test_without_a_scheduler_at_the_address_it_is_one_line() -> None:
    with pytest.raises(CommandError, match="--cluster not an address: no scheduler answers"):
        workers_of("not an address").__enter__()


def test_in_this_process_the_same_comes_of_files_without_workers(tmp_path: Path) -> None:
    for name in ("file", "damaged", "fails"):
        (tmp_path / name).write_text(name)
    places = [str(tmp_path / name) for name in ("file", "damaged", "fails")]
    file, damaged, fails = read_here(worker_reads.read, places)
    assert file.summaries[0] == b"file"
    assert (damaged.problem, fails.problem) == ("byte 7: no events", "no route to host")


RANKS = 10


@pytest.fixture
def traces(tmp_path: Path) -> tuple[Path, Planted]:
    """Ranks made from two steps of two of the four ranks of h200x4_straggler."""
    folder = tmp_path / "traces"
    folder.mkdir()
    recordings = [DATA / f"straggler_rank{rank}.json.gz" for rank in (0, 3)]
    return folder, write_ranks(recordings, folder, RANKS)


def run(*arguments: object) -> int:
    return main(list(map(str, arguments)))


def without_titles(ranks: RanksAnalysis | None) -> RanksAnalysis:
    """Of one capture all ranks have its title, else each that of its file."""
    assert ranks is not None
    figures = tuple(msgspec.structs.replace(each, title="") for each in ranks.ranks)
    return msgspec.structs.replace(ranks, ranks=figures)


def test_workers_say_what_one_capture_of_all_ranks_says(
    client: Any,
    traces: tuple[Path, Planted],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, planted = traces
    stored = tmp_path / "job.gpuprof"
    address = client.scheduler.address
    assert run("analyze", "-q", folder, "--cluster", address, "-o", stored) == 0
    analysis = load_analysis(stored)
    assert (analysis.title, analysis.rank) == ("traces", 0)

    capture = with_steps(open_trace(folder), None)
    summaries = [summarise(capture, rank) for rank in capture.manifest.ranks]
    assert len(summaries) == RANKS
    expected = join(summaries, instances(summaries))
    assert without_titles(analysis.ranks) == without_titles(expected)

    ranks = without_titles(analysis.ranks)
    assert {late.rank for late in ranks.stragglers} == {planted.extra_work, planted.slow_device}
    (cause, *_) = ranks.stragglers[0].causes
    assert (ranks.stragglers[0].rank, cause.calls) == (planted.extra_work, 20)
    assert ranks.clocks is not None
    offsets_ns = {clock.rank: clock.offset_ns for clock in ranks.clocks.clocks}
    assert offsets_ns[planted.wrong_clock] == pytest.approx(WRONG_CLOCK_NS, abs=10**6)
    assert [rank for rank in range(RANKS) if rank not in offsets_ns] == [planted.halved]

    other = load_analysis(stored, planted.extra_work)
    assert other.rank == planted.extra_work
    assert other.ranks == analysis.ranks
    assert run("report", stored, "--rank", RANKS, "-o", tmp_path / "none.html") == 2
    assert f"--rank {RANKS}: the ranks here are 0, 1," in capsys.readouterr().err
    (folder / f"job_rank{planted.slow_device}.json.gz").rename(tmp_path / "away")
    assert run("summary", stored, "--rank", planted.slow_device) == 1
    assert "no such file" in capsys.readouterr().err


def test_files_read_one_by_one_say_what_one_capture_of_them_says(
    traces: tuple[Path, Planted], tmp_path: Path
) -> None:
    """Also where content, name or order tell the rank, and beside files that are no rank."""
    folder, _ = traces
    for rank in range(5, RANKS):
        (folder / f"job_rank{rank}.json.gz").unlink()
    # Named as another rank, without the rank in its content, and twice the same one.
    (folder / "job_rank3.json.gz").rename(folder / "a_rank7.json.gz")
    unnamed = gzip.decompress((folder / "job_rank4.json.gz").read_bytes())
    unnamed = unnamed.replace(b'"distributedInfo"', b'"otherInfo"')
    (folder / "job_rank4.json.gz").unlink()
    (folder / "job_rank5.json").write_bytes(unnamed)
    shutil.copy(folder / "job_rank2.json.gz", folder / "second.json.gz")
    # No rank of the job: a process without device work, and a snapshot.
    shutil.copy(KINETO / "cpu-only.json", folder / "front_end.json")
    shutil.copy(
        DATA.parent / "memory_snapshot/training_step.pickle.gz", folder / "memory.pickle.gz"
    )
    # Of ranks with a trace and of one without.
    recorder = DATA.parent / "flight_recorder"
    for rank, file in (
        (0, "nccl_trace_rank_0"),
        (1, "nccl_trace_rank_1"),
        (9, "nccl_trace_rank_1"),
    ):
        shutil.copy(recorder / file, folder / f"nccl_trace_rank_{rank}")

    def nothing(_: object) -> None:
        pass

    whole = read_run([folder], nothing)
    job = read_job("traces", files_of_ranks(str(folder)), Workers(), nothing)
    assert [each.summary.rank for each in job.ranks] == list(whole.manifest.ranks)
    assert whole.manifest.ranks == (0, 1, 2, 3, 5, 6, 9)
    assert len(job.left_out) == 3
    # A rank with a dump beside its trace, and one with a dump alone.
    for rank in (0, 9):
        apart = analyze_of_job(job, capture_of_rank(job, rank))
        together = analyze(whole, rank=rank)
        assert apart.recorder is not None
        assert apart.recorder.ranks == (0, 1, 9)
        assert without_titles(apart.ranks) == without_titles(together.ranks)
        assert differing(apart, together) == []
        if rank == 0:
            assert set(apart.warnings) == set(together.warnings)
    stored = tmp_path / JOB_FILE
    stored.write_bytes(encode_job(job))
    assert encode_job(read_job_file(tmp_path)) == stored.read_bytes()


# Of the capture that is stored, which has one rank in place of all; and of one capture the first
# rank has the warnings about all files.
OF_THE_CAPTURE = {"title", "source", "created_ns", "warnings"}


def differing(one: Analysis, other: Analysis) -> list[str]:
    names = [name for name in one.__struct_fields__ if name not in {*OF_THE_CAPTURE, "ranks"}]
    return [name for name in names if getattr(one, name) != getattr(other, name)]
