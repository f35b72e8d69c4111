"""Real jobs of 2 and 4 processes with gloo: one capture, who makes the others wait, who died."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from checkout import needs_checkout
from fork_server import ForkServer
from training_script import FEW, write

from gpuprof.collectors import storage
from gpuprof.roofline.analyze import analyze

EXAMPLE = Path(__file__).parents[2] / "examples" / "ranks" / "train.py"
LAYERS, STEPS, SLEEP_NS = 3, 3, 300_000_000


@needs_checkout
def test_torchrun_makes_one_capture_that_names_the_rank_that_sleeps(
    tmp_path: Path, gpuprof_environment: dict[str, str], server: ForkServer
) -> None:
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    command += ["--no-python", *server.command]
    command += ["-m", "gpuprof", "run", "--warmup", "1", "--timed", "2", "--profiled", str(STEPS)]
    command += ["-o", "out.gpuprof", str(EXAMPLE), "fsdp", "--fault", "sleep"]
    done = subprocess.run(
        [sys.executable, *command, "--seconds", str(SLEEP_NS / 1e9), "--steps", "10"],
        cwd=tmp_path,
        env={**gpuprof_environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.count("gpuprof report out.gpuprof") == 1
    # Neither parts nor marks stay.
    assert os.listdir(tmp_path) == ["out.gpuprof"]

    capture = storage.load(tmp_path / "out.gpuprof")
    assert capture.manifest.ranks == (0, 1, 2, 3)
    assert {process.world_size for process in capture.processes} == {4}
    phases = capture.steps.group_by("rank", "phase").len()
    assert set(phases.filter(phase="timed")["len"]) == {2}
    assert set(phases.filter(phase="profiled")["len"]) == {STEPS}
    communicates = capture.kernels.filter(pl.col("kind") == "collective")
    counts = communicates.group_by("rank", "collective").len().sort("rank", "collective")
    assert counts.filter(collective="_reduce_scatter_base")["len"].to_list() == [LAYERS * STEPS] * 4
    assert set(communicates["group_size"]) == {4}
    # torch 2.8 was the first to record what tells their order in the group.
    if communicates["sequence"].null_count() == 0:
        assert communicates["sequence"].n_unique() * 4 == communicates.height

    found = analyze(capture).ranks
    assert found is not None
    assert found.matched == found.collectives == communicates.height
    (straggler,) = [each for each in found.stragglers if each.pattern == "persistent"]
    assert straggler.rank == 3
    line = next(
        number
        for number, text in enumerate(EXAMPLE.read_text().splitlines(), 1)
        if "# fault: sleep" in text
    )
    cause = straggler.causes[0]
    assert (cause.what, cause.place) == ("Python between operators", f"train.py:{line}")
    assert cause.nanoseconds == pytest.approx(SLEEP_NS, rel=0.2)
    assert "rank 3" in done.stderr.lower()


KILLED = """
import glob, signal, time
import torch.distributed as dist
rank = int(os.environ['SLURM_PROCID'])
dist.init_process_group('gloo', init_method=f'file://{os.getcwd()}/meet', rank=rank, world_size=2)
train(9)
dist.barrier()
while not glob.glob('.*.rank1.part'):
    time.sleep(0.05)
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux tells of other processes")
def test_srun_makes_one_capture_and_a_rank_that_is_killed_is_named(
    tmp_path: Path, gpuprof_environment: dict[str, str]
) -> None:
    script = write(tmp_path, KILLED)
    ranks = []
    for rank in (0, 1):
        job = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2"}
        job |= {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0"}
        ranks.append(
            subprocess.Popen(
                [sys.executable, "-m", "gpuprof", "run", *FEW, script],
                cwd=tmp_path,
                env={**gpuprof_environment, "OMP_NUM_THREADS": "1", **job},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
            )
        )
    # Nobody has asked how the second ended when the first joins them.
    _, said = ranks[0].communicate(timeout=240)
    assert (ranks[0].returncode, ranks[1].wait()) == (0, -signal.SIGKILL), said
    assert said.rstrip().endswith("gpuprof report gpuprof-script-job77.0.gpuprof")
    capture = storage.load(tmp_path / "gpuprof-script-job77.0.gpuprof")
    assert capture.manifest.ranks == (0, 1)
    first, second = capture.processes
    assert (first.ending, second.ending, second.exit_code) == ("finished", "killed", -9)
    expected = "rank 1 was killed by SIGKILL: only its profiled steps are here"
    assert expected in first.warnings
    assert [path for path in os.listdir(tmp_path) if path.startswith(".")] == []
