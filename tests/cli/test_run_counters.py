"""`gpuprof run --counters`: a second run under ncu, or one line that says why there is none.

What runs on a GPU is recorded: a Llama block on an H100, and the page that ncu wrote of its step.
"""

import gzip
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.tools import TOOL_PLACES
from gpuprof.profiler.captures import load_analysis
from gpuprof.profiler.run.counters_pass import Runs, run_with_counters

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]

DATA = Path(__file__).resolve().parents[1] / "data"
RECORDED = DATA / "captures" / "h100_llama_block"
PAGE = DATA / "ncu" / "h100_llama_block_step.csv.gz"
# Stores the recorded capture as a first run would have, and ends as the program did.
FIRST = """
import os, sys
from pathlib import Path
import msgspec
from gpuprof.collectors import storage
capture = storage.load(Path(sys.argv[1]))
(process,) = capture.processes
process = msgspec.structs.replace(process, process=os.getpid())
storage.save(capture.with_processes((process,)), Path(sys.argv[2]))
sys.exit(5)
"""
NO_PERMISSION = "==ERROR== ERR_NVGPUCTRPERM - The user lacks permission to access counters\n"


@pytest.fixture
def fake_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Put an `ncu` on PATH that writes this as its page; returns where its arguments will be."""

    def install(page: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "page").write_text(page)
        ncu = folder / "ncu"
        ncu.write_text(
            f"#!{sys.executable}\n"
            "import shutil, sys\n"
            f"open({str(folder / 'arguments')!r}, 'w').write(chr(10).join(sys.argv[1:]))\n"
            "log = sys.argv[sys.argv.index('--log-file') + 1]\n"
            f"shutil.copyfile({str(folder / 'page')!r}, log)\n"
        )
        ncu.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
        return folder / "arguments"

    return install


def count(output: Path, *, quiet: bool = True) -> int:
    first = (sys.executable, "-c", FIRST, str(RECORDED), str(output))
    return run_with_counters(Runs(first, ("python",), ("program.py",)), output, quiet=quiet)


def warnings(capture: Capture) -> str:
    return "; ".join(capture.processes[0].warnings)


def test_the_counters_of_a_step_join_the_capture(
    tmp_path: Path, fake_ncu: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = fake_ncu(gzip.decompress(PAGE.read_bytes()).decode())
    output = tmp_path / "out.gpuprof"
    assert count(output, quiet=False) == 5
    capture = storage.load(output)
    assert warnings(capture) == ""
    # The averages that ncu's regular expression brings along are left out.
    assert capture.counters["metric"].str.ends_with(".avg").sum() == 0
    measured = load_analysis(output).measured
    assert measured is not None
    assert (measured.launches, measured.launches_in_trace) == (39, 159)
    products = [
        part for kernel in measured.kernels for part in kernel.flops if part.unit == "tensor"
    ]
    assert sum(part.measured == part.modelled for part in products) == 8
    assert all(reason.source for kernel in measured.kernels for reason in kernel.reasons)
    assert measured.counting is not None
    assert (measured.counting.counted, measured.counting.joined) == (39, 39)
    assert 0.9 < measured.counting.gain_fraction <= 1
    told = capsys.readouterr().err
    assert "39 of 159 launches: tensor FLOPs equal in 8 of 11" in told
    assert f"for {measured.counting.chosen} launches with " in told
    told_ncu = arguments.read_text().split("\n")
    counted = told_ncu[told_ncu.index("python") :]
    assert counted[1:3] == ["-m", "gpuprof.profiler.run.counted_program"]
    assert counted[-1] == "program.py"
    assert told_ncu[told_ncu.index("--filter-mode") + 1] == "per-launch-config"
    assert told_ncu[told_ncu.index("--profile-from-start") + 1] == "no"
    assert told_ncu[told_ncu.index("--clock-control") + 1] == "none"
    assert "multi_tensor_apply_kernel" in told_ncu[told_ncu.index("--kernel-name") + 1]


def test_without_permission_it_says_what_to_change_and_keeps_the_capture(
    tmp_path: Path, fake_ncu: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fake_ncu(NO_PERMISSION)
    output = tmp_path / "out.gpuprof"
    assert count(output) == 5
    told = capsys.readouterr().err.strip().split("\n")[-1]
    assert told.startswith("gpuprof: no counters: ")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in told
    capture = storage.load(output)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in warnings(capture)
    assert capture.kernels.height == storage.load(RECORDED).kernels.height
    assert load_analysis(output).measured is None


def test_counters_that_another_tool_holds_name_it_and_what_to_do(
    tmp_path: Path, fake_ncu: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fake_ncu(
        "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no "
        "other tool (like DCGM) is concurrently collecting profiling data. See the FAQ.\n"
    )
    assert count(tmp_path / "out.gpuprof") == 5
    told = capsys.readouterr().err
    assert "another tool holds the GPU's performance counters" in told
    assert "dcgmi profile --pause" in told


def test_ncus_own_error_is_told_and_not_its_remarks(
    tmp_path: Path, fake_ncu: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fake_ncu("==WARNING== Note: Running with unmodified GPU clocks.\n==ERROR== Out of luck\n")
    assert count(tmp_path / "out.gpuprof") == 5
    assert "no counters: no CSV, ncu said: Out of luck\n" in capsys.readouterr().err


def test_without_ncu_it_says_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(TOOL_PLACES, "ncu", ())
    output = tmp_path / "out.gpuprof"
    assert count(output) == 5
    assert "Nsight Compute (ncu) is not on PATH" in capsys.readouterr().err
    assert "Nsight Compute (ncu) is not on PATH" in warnings(storage.load(output))


def test_a_terminated_count_leaves_no_process_and_keeps_the_capture(
    tmp_path: Path, fake_ncu: Callable[[str], Path]
) -> None:
    arguments = fake_ncu("")
    ncu = arguments.with_name("ncu")
    pid_file = arguments.with_name("pid")
    ncu.write_text(
        f"#!{sys.executable}\n"
        "import os, signal, time\n"
        f"open({str(pid_file)!r}, 'x').write(str(os.getpid()))\n"
        # It ends what watches over it, then hangs.
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "time.sleep(600)\n"
    )
    output = tmp_path / "out.gpuprof"
    source = (
        "import sys\n"
        "from pathlib import Path\n"
        "from gpuprof.profiler.run.counters_pass import Runs, run_with_counters\n"
        "runs = Runs(tuple(sys.argv[2:]), ('python',), ('program.py',))\n"
        "run_with_counters(runs, Path(sys.argv[1]), quiet=True)\n"
    )
    first = [sys.executable, "-c", FIRST, str(RECORDED), str(output)]
    ran = subprocess.run([sys.executable, "-c", source, str(output), *first], check=False)
    assert ran.returncode == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert storage.load(output).kernels.height > 0


def test_an_older_capture_is_left_alone_where_the_program_did_not_start(
    tmp_path: Path, fake_ncu: Callable[[str], Path]
) -> None:
    arguments = fake_ncu("")
    output = tmp_path / "out.gpuprof"
    storage.save(storage.load(RECORDED), output)
    runs = Runs((sys.executable, "-c", "raise SystemExit(2)"), ("python",), ("program.py",))
    assert run_with_counters(runs, output, quiet=True) == 2
    assert not arguments.exists()
    assert warnings(storage.load(output)) == ""


def test_a_program_on_a_cpu_keeps_its_capture_output_and_exit_code(
    tmp_path: Path, cold_gpuprof: Gpuprof
) -> None:
    source = "import sys, torch; torch.ones(3) + 1; print(sys.argv[1:]); sys.exit(3)"
    ours = cold_gpuprof("run", "--counters", "-q", "-o", "out.gpuprof", "-c", source, "a", "-q")
    assert (ours.returncode, ours.stdout) == (3, "['a', '-q']\n")
    assert ours.stderr == (
        "gpuprof: no counters: Nsight Compute counts on NVIDIA GPUs; this program ran on a CPU\n"
    )
    capture = storage.load(tmp_path / "out.gpuprof")
    assert capture.kernels.height > 0
    assert "this program ran on a CPU" in warnings(capture)


def test_several_ranks_are_refused_before_the_program_runs(
    tmp_path: Path, cold_gpuprof: Gpuprof, gpuprof_environment: dict[str, str]
) -> None:
    gpuprof_environment |= {"RANK": "0", "WORLD_SIZE": "2"}
    ours = cold_gpuprof("run", "--counters", "-c", "print('ran')")
    assert (ours.returncode, ours.stdout) == (2, "")
    assert "--counters works for one process" in ours.stderr
    assert list(tmp_path.glob("*.gpuprof")) == []


def test_pythons_own_options_reach_the_program(
    tmp_path: Path, gpuprof_environment: dict[str, str]
) -> None:
    command = f"{shlex.quote(sys.executable)} -O -X utf8 -m gpuprof run --counters -q -c "
    source = "import sys; print(sys.flags.optimize, sys.flags.utf8_mode)"
    ran = subprocess.run(
        command + shlex.quote(source),
        shell=True,
        cwd=tmp_path,
        env=gpuprof_environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "1 1\n")


def test_the_second_run_is_what_python_would_run(
    tmp_path: Path, gpuprof_environment: dict[str, str]
) -> None:
    (tmp_path / "script.py").write_text(
        "import sys, torch\n"
        "model = torch.nn.Linear(4, 4)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(6):\n"
        "    model(torch.randn(2, 4)).sum().backward()\n"
        "    optimizer.step()\n"
        "print(sys.argv, __name__)\n"
        "sys.exit(4)\n"
    )
    program = (
        *("-m", "gpuprof.profiler.run.counted_program", "--seconds", "60"),
        *("--warmup", "2", "script", "script.py"),
    )
    ran = subprocess.run(
        [sys.executable, *program, "-x"],
        cwd=tmp_path,
        env=gpuprof_environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (4, "")
    assert ran.stdout == "['script.py', '-x'] __main__\n"
