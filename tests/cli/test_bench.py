"""`gpuprof bench` as a process, on the CPU."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fork_server import ForkServer
from json_documents import read_answer

from gpuprof.collectors import storage
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.bench.results import BENCH_FILE, BenchReport

Command = Callable[..., "subprocess.CompletedProcess[str]"]
SMALL = ("stream", "--sizes", "copy:64KiB", "triad:64KiB", "--seconds", "0.05", "--device", "cpu")


def test_a_bench_prints_a_table_and_stores_a_capture(gpuprof: Command, tmp_path: Path) -> None:
    done = gpuprof("bench", *SMALL, "-o", "b.gpuprof", "--json", "b.json", "--seed", "3")
    assert done.returncode == 0, done.stderr
    # The progress bar is for terminals only.
    assert done.stderr == ""
    assert "No GPU is used" in done.stdout
    assert "stream copy:64KiB fp32: 131 kB" in done.stdout
    assert "seed 3" in done.stdout
    assert done.stdout.rstrip().endswith("gpuprof summary b.gpuprof")
    assert read_answer((tmp_path / "b.json").read_bytes())["schema"]["name"] == "bench"
    report = msgspec.json.decode((tmp_path / "b.json").read_bytes(), type=BenchReport)
    assert [case.label for case in report.cases] == [
        "stream/torch copy:64KiB fp32",
        "stream/torch triad:64KiB fp32",
    ]
    assert all(len(case.samples_ns) >= 10 and case.error is None for case in report.cases)
    assert report.fingerprint.torch is not None
    stored = (tmp_path / "b.gpuprof" / BENCH_FILE).read_bytes()
    assert msgspec.json.decode(stored, type=BenchReport) == report


def test_summary_and_report_work_on_a_bench(gpuprof: Command, tmp_path: Path) -> None:
    assert gpuprof("bench", *SMALL, "-o", "b.gpuprof").returncode == 0
    summary = gpuprof("summary", "b.gpuprof")
    assert summary.returncode == 0, summary.stderr
    assert "one call of each of 2 versions" in " ".join(summary.stdout.split())
    assert gpuprof("report", "b.gpuprof", "-o", "b.json").returncode == 0
    analysis = msgspec.json.decode((tmp_path / "b.json").read_bytes(), type=Analysis)
    assert {point.name for point in analysis.ranges} == {
        "stream/torch copy:64KiB fp32",
        "stream/torch triad:64KiB fp32",
    }
    assert all(point.roof_fraction is not None for point in analysis.ranges)


def test_with_one_version_its_calls_are_the_steps(gpuprof: Command, tmp_path: Path) -> None:
    one = ("stream/torch", "--sizes", "copy:64KiB", "--seconds", "0.05", "--device", "cpu")
    assert gpuprof("bench", *one, "-o", "b.gpuprof", "--json", "b.json").returncode == 0
    report = msgspec.json.decode((tmp_path / "b.json").read_bytes(), type=BenchReport)
    assert gpuprof("report", "b.gpuprof", "-o", "r.json").returncode == 0
    analysis = msgspec.json.decode((tmp_path / "r.json").read_bytes(), type=Analysis)
    assert analysis.steps.found_by == "stream/torch copy:64KiB fp32"
    assert analysis.steps.samples_ns == report.cases[0].samples_ns
    assert analysis.steps.median_ns == report.cases[0].median_ns


def test_without_a_gpu_counters_are_refused_and_the_bench_is_kept(
    gpuprof: Command, tmp_path: Path
) -> None:
    ran = gpuprof("bench", *SMALL, "--counters", "-o", "b.gpuprof")
    assert ran.returncode == 0
    assert "stream copy:64KiB fp32: 131 kB" in ran.stdout
    assert "no counters: Nsight Compute counts on NVIDIA GPUs" in ran.stderr
    assert (tmp_path / "b.gpuprof" / BENCH_FILE).is_file()
    assert "ran on a CPU" in "; ".join(storage.load(tmp_path / "b.gpuprof").processes[0].warnings)


def test_check_only_checks_and_stores_nothing(gpuprof: Command, tmp_path: Path) -> None:
    done = gpuprof("bench", *SMALL, "--check")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("allowed") == 2
    assert "Checked: 2 against float64" in done.stdout
    assert "Timed" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_list_names_every_family_with_its_sizes(gpuprof: Command) -> None:
    done = gpuprof("bench", "--list")
    assert done.returncode == 0, done.stderr
    assert "stream: sizes copy:BYTES or triad:BYTES" in " ".join(done.stdout.split())
    assert "nccl-ring" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["streem"], "no family 'streem': did you mean stream?", 2),
        (["stream/torhc"], "did you mean torch?", 2),
        (["stream", "--dtype", "fp17"], "no dtype 'fp17'", 2),
        (["stream", "--sizes", "copy"], "no number of bytes", 2),
        (["stream", "collectives", "--sizes", "copy:1KiB"], "collectives needs several", 2),
        (["stream", "--device", "cuda:99"], "this machine has cpu", 2),
        (["stream", "--device", "quantum"], "give cpu or cuda:0", 2),
        (["stream", "--dtype", "int8", "--device", "cpu"], "nothing to run here", 1),
        (["collectives"], "torchrun --nproc-per-node N", 2),
        (["stream", "--check", "-o", "x.gpuprof"], "--check times nothing", 2),
        (["--measured", "x.json"], "--measured needs --claims", 2),
        (["--claims", "none.toml"], "public-articles", 1),
        (["--claims", "wrong.toml"], "wrong.toml, claim 1 (gate), size: '1x2' is not MxNxK", 1),
        (["--claims", "public-articles", "--measured", "none.json"], "No such file", 1),
    ],
)
def test_a_wrong_request_is_one_line(
    gpuprof: Command, tmp_path: Path, arguments: list[str], message: str, code: int
) -> None:
    (tmp_path / "wrong.toml").write_text(
        'source = "mine"\n[[claim]]\nname = "gate"\nkind = "gemm"\nsize = "1x2"\n'
    )
    done = gpuprof("bench", *arguments)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.returncode == code


def test_nothing_is_overwritten_without_force(gpuprof: Command, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text("mine")
    done = gpuprof("bench", *SMALL, "--check", "--json", "b.json")
    assert done.returncode == 1
    assert "choose another --json or pass --force" in done.stderr
    assert (tmp_path / "b.json").read_text() == "mine"


def test_claims_need_neither_torch_nor_a_gpu(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["torch"] = None
from gpuprof.profiler.cli import main
sys.exit(main(["bench", "--claims", "public-articles", "--json", "claims.json"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Llama block gate (H100): beyond the hardware" in done.stdout
    assert "9 beyond the hardware" in " ".join(done.stdout.split())
    assert len(msgspec.json.decode((tmp_path / "claims.json").read_bytes())["claims"]) == 37


def test_a_bench_stands_beside_the_claims(gpuprof: Command, tmp_path: Path) -> None:
    assert gpuprof("bench", *SMALL, "-o", "b.gpuprof").returncode == 0
    (tmp_path / "own.toml").write_text(
        'source = "mine"\n[[claim]]\nname = "a"\ngpu = "A100"\nkind = "gemm"\n'
        'size = "4096x4096x4096"\ndtype = "bf16"\ntime_us = 500\n'
    )
    done = gpuprof("bench", "--claims", "own.toml", "--measured", "b.gpuprof")
    assert done.returncode == 0, done.stderr
    # It was measured on this CPU, which is no A100.
    assert "Nothing measured matches a claim" in done.stdout
    assert "1 claim: 1 possible" in done.stdout


def test_under_torchrun_the_collectives_run_on_all_ranks(
    tmp_path: Path, gpuprof_environment: dict[str, str], server: ForkServer
) -> None:
    command = ["bench", "collectives/gloo", "collectives/ring", "--sizes", "all-reduce:4KiB"]
    options = ["--seconds", "0.05", "-o", "c.gpuprof", "--json", "c.json"]
    port = str(20000 + os.getpid() % 20000)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port]
    torchrun += ["--no-python", *server.command]
    done = subprocess.run(
        [sys.executable, *torchrun, "-m", "gpuprof", *command, *options],
        cwd=tmp_path,
        env={**gpuprof_environment, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    # Rank 0 alone prints.
    assert done.stdout.count("collectives all-reduce:4KiB fp32") == 1
    report = msgspec.json.decode((tmp_path / "c.json").read_bytes(), type=BenchReport)
    assert report.ranks == 2
    assert [case.version for case in report.cases] == ["gloo", "ring"]
    # Of 4096 bytes 2 x 1/2 cross each rank's link.
    assert [case.bus_bytes for case in report.cases] == [4096, 4096]
    assert sorted(path.name for path in (tmp_path / "c.gpuprof").glob("rank=*")) == [
        "rank=0",
        "rank=1",
    ]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
