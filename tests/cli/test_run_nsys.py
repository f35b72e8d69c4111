"""`gpuprof run --nsys`, with an nsys that copies what was recorded before.

The recording is a run on an H200, taken apart: its operators and steps are what the program stores,
its device work and calls what the fake nsys reports.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from nsys_exports import write_export

from gpuprof.collectors import storage
from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.tools import TOOL_PLACES, configure_tools
from gpuprof.profiler.captures import load_analysis
from gpuprof.profiler.run.nsys_pass import find_nsys, run_under_nsys

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]
Install = Callable[[str], Path]

RECORDED = Path(__file__).parents[1] / "data" / "captures" / "h200_llama_block"
# Stores what `gpuprof run` would have under Nsight Systems, and ends as the program did.
PROGRAM = """
import os, sys
from dataclasses import replace
from pathlib import Path
import msgspec
import polars as pl
from gpuprof.collectors import storage
from gpuprof.collectors.held_cupti import held_sentence
capture = storage.load(Path(sys.argv[1]))
(process,) = capture.processes
process = msgspec.structs.replace(
    process, process=os.getpid(), warnings=(held_sentence("Nsight Systems"),)
)
tables = {name: capture.table(name).clear() for name in ("kernels", "launches")}
tables["ops"] = capture.ops.with_columns(process=pl.lit(os.getpid(), pl.Int64))
storage.save(replace(capture.with_processes((process,)), **tables), Path(sys.argv[2]))
print("the program's")
sys.exit(5)
"""
# Runs the program, and reports it where it was told to by these lines.
NSYS = """#!{python}
import os, signal, sqlite3, subprocess, sys
print("Generating a report on the program's stdout")
options = [one for one in sys.argv[1:] if one.startswith("--")]
open({folder!r} + "/options", "w").write(chr(10).join(options))
report = next(one for one in options if one.startswith("--output=")).split("=", 1)[1] + ".nsys-rep"
start = next(place for place, one in enumerate(sys.argv) if place > 1 and one[0] != "-")
child = subprocess.Popen(sys.argv[start:], close_fds=False)
child.wait()
{lines}
sys.exit(child.returncode)
"""
# The recording, with the ids of the program that has just run.
COPY = """
import shutil
shutil.copyfile({export!r}, report)
connection = sqlite3.connect(report)
own = 1 << 48 | child.pid << 24
for kind in ("KERNEL", "MEMCPY", "MEMSET"):
    connection.execute(f"UPDATE CUPTI_ACTIVITY_KIND_{{kind}} SET globalPid = {{own}}")
for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"):
    connection.execute(f"UPDATE {{table}} SET globalTid = {{own}} | (globalTid & 16777215)")
connection.commit()
"""


@pytest.fixture
def fake_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put an `nsys` on PATH that ends with these lines; returns its folder."""

    def install(lines: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        nsys = folder / "nsys"
        nsys.write_text(NSYS.format(python=sys.executable, folder=str(folder), lines=lines))
        nsys.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
        return folder

    return install


@pytest.fixture
def export(tmp_path: Path) -> Path:
    whole = storage.load(RECORDED)
    session_ns = whole.launches["start_ns"].to_list()[0]
    return write_export(whole, tmp_path / "recorded.sqlite", session_ns=session_ns)


def record(output: Path, *, quiet: bool = True) -> int:
    program = (sys.executable, "-c", PROGRAM, str(RECORDED), str(output))
    return run_under_nsys(find_nsys(), program, output, quiet=quiet)


def test_the_recording_joins_the_capture_and_is_kept_in_it(
    tmp_path: Path, fake_nsys: Install, export: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = fake_nsys(COPY.format(export=str(export)))
    output = tmp_path / "out.gpuprof"
    assert record(output, quiet=False) == 5
    capture, whole = storage.load(output), storage.load(RECORDED)
    assert capture.kernels["op_id"].to_list() == whole.kernels["op_id"].to_list()
    assert capture.kernels["step"].to_list() == whole.kernels["step"].to_list()
    assert capture.processes[0].warnings == ()
    assert load_analysis(output).split == load_analysis(RECORDED).split
    assert (output / storage.NSYS_REPORT).read_bytes()[:6] == b"SQLite"
    # With its report it is still a capture that the next run may replace.
    storage.refuse_existing_capture(output, force=True)
    printed = capfd.readouterr()
    assert printed.out == "the program's\n"
    assert "Largest loss" in printed.err
    assert "Generating" not in printed.err
    options = (folder / "options").read_text().split("\n")
    assert {"--trace=cuda,nvtx", "--cuda-graph-trace=node", "--kill=none"} <= set(options)
    assert {"--capture-range=cudaProfilerApi", "--capture-range-end=stop"} <= set(options)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("print('out of luck')", "nsys made no report"),
        ("open(report, 'wb').write(b'SQLite format 3' + bytes(1))", "damaged SQLite file"),
    ],
)
def test_without_a_recording_the_capture_is_kept_and_says_why(
    tmp_path: Path,
    fake_nsys: Install,
    capfd: pytest.CaptureFixture[str],
    lines: str,
    said: str,
) -> None:
    fake_nsys(lines)
    output = tmp_path / "out.gpuprof"
    assert record(output) == 5
    told = capfd.readouterr().err.strip().split("\n")[-1]
    assert told.startswith("gpuprof: no recording of Nsight Systems: ")
    assert said in told
    warnings = storage.load(output).processes[0].warnings
    assert said in warnings[-1]
    assert (output / storage.NSYS_REPORT).exists() == ("write" in lines)


def test_a_recording_of_another_process_is_not_joined(
    tmp_path: Path, fake_nsys: Install, export: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fake_nsys(COPY.format(export=str(export)).replace("child.pid", "7"))
    output = tmp_path / "out.gpuprof"
    assert record(output) == 5
    assert "nothing of this process's profiled steps" in capfd.readouterr().err
    assert storage.load(output).manifest.ranks == (0,)


def test_an_nsys_that_does_not_start_the_program_says_what_it_said(
    tmp_path: Path, fake_nsys: Install
) -> None:
    nsys = fake_nsys("") / "nsys"
    nsys.write_text(
        f"#!{sys.executable}\nprint('unrecognised option --trace')\nraise SystemExit(1)"
    )
    with pytest.raises(CommandError, match="did not start the program: unrecognised option"):
        record(tmp_path / "out.gpuprof")


def test_a_program_that_a_signal_ends_ends_us(
    tmp_path: Path, fake_nsys: Install, export: Path
) -> None:
    # As nsys tells it: 128 and the signal.
    fake_nsys("sys.exit(128 + signal.SIGTERM)")
    assert record(tmp_path / "out.gpuprof") == 128 + signal.SIGTERM


def test_where_nsys_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_nsys: Install
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(TOOL_PLACES, "nsys", ())
    with pytest.raises(CommandError, match=r"neither on PATH .*\[tools\]"):
        find_nsys()
    installed = fake_nsys("") / "nsys"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(TOOL_PLACES, "nsys", (f"{tmp_path}/b*/nsys",))
    assert find_nsys() == str(installed)
    monkeypatch.setattr("gpuprof.collectors.tools._configured", {})
    configure_tools({"nsys": str(tmp_path)})
    with pytest.raises(CommandError, match="is no program that can be run"):
        find_nsys()


def test_the_command_says_what_it_cannot_do(cold_gpuprof: Gpuprof, tmp_path: Path) -> None:
    (tmp_path / "gpuprof.toml").write_text('[tools]\nnsys = "/nowhere/nsys"\n')
    (tmp_path / "script.py").write_text("")
    done = cold_gpuprof("run", "--nsys", "script.py")
    assert done.returncode == 1
    assert done.stderr == "gpuprof: --nsys: /nowhere/nsys is no program that can be run\n"
    both = cold_gpuprof("run", "--nsys", "--counters", "script.py")
    assert both.returncode == 2
    assert "only one of Nsight Compute and Nsight Systems" in both.stderr
