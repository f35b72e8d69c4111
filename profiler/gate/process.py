"""One fresh process of one side, from its command to what it measured."""

import hashlib
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Collection
from pathlib import Path

from gpuprof.collectors.errors import CaptureError, problem_of
from gpuprof.collectors.live.nvml.processes import compute_processes
from gpuprof.collectors.manifest import Fingerprint
from gpuprof.collectors.masked_arguments import masked_arguments
from gpuprof.profiler.child_processes import run_child
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate.benchmarks import benchmarks
from gpuprof.profiler.gate.sides import SideProgram
from gpuprof.roofline.gate.measurement import Measurement, measurement
from gpuprof.roofline.gate.series import Side
from gpuprof.roofline.gate.suite import MeasuredProcess

# Beside its captures: what the process printed.
LOG_FILE = "output.txt"
# A context of a process that just ended may take this long to go.
_SETTLE_SECONDS = 2.0
# Of a process that failed: enough for the end of a traceback.
_LAST_LINES = 12
_LONGEST_LINE = 300


def process_folder(output: Path, side: Side, target: str, pair: int) -> Path:
    """Where one process of a gate writes its captures and its log."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in target)
    if safe != target:
        # Of "a/b" and "a-b" each has a folder of its own.
        safe += f"-{hashlib.sha256(target.encode()).hexdigest()[:6]}"
    return output / safe / f"pair-{pair:03d}-{side}"


def measure_process(
    program: SideProgram,
    target: Target,
    *,
    pair: int,
    first: bool,
    output: Path,
    only: Collection[str] = (),
    profiled: bool = True,
) -> tuple[MeasuredProcess, Fingerprint | None]:
    """Run `target` once in a fresh process that writes its captures into the folder `output`.

    `only` are the benchmarks wanted of those that the target holds; empty for all. `profiled`: also
    some steps under the profiler, which tell kernels and counts.
    Never raises for what the process does: a crash, a hang and a missing capture are failures of
    this process, told in one line.
    """
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    others = _others()
    start = time.monotonic()
    # The process runs in its side's folder, so a relative output would be another one.
    command = target.command(program.python, output.absolute(), only, profiled=profiled)
    failure = _run(program, command, output, timeout_s=target.timeout_s)
    seconds = time.monotonic() - start
    others = max(others, _others())
    measured: dict[str, Measurement] = {}
    fingerprint = None
    try:
        for benchmark in benchmarks(output, target):
            measured[benchmark.name] = measurement(benchmark.capture, benchmark.analysis)
            fingerprint = benchmark.capture.processes[0].fingerprint
    except CaptureError as error:
        failure = failure or str(error)
    log = output / LOG_FILE
    if not measured and not failure:
        failure = f"it ended well and left no capture ({log})"
    return (
        MeasuredProcess(
            target=target.name,
            side=program.side,
            pair=pair,
            first=first,
            measurements={} if failure else measured,
            profiled=profiled or target.always_profiled,
            failure=failure,
            last_lines=_last_lines(log) if failure else (),
            log=str(log) if failure else "",
            contamination=f"{others} other processes used the GPU" if others else "",
            seconds=round(seconds, 3),
        ),
        fingerprint,
    )


def _run(program: SideProgram, command: tuple[str, ...], output: Path, *, timeout_s: float) -> str:
    """Run the process to its end. Returns what went wrong in one line, or ""."""
    log = output / LOG_FILE
    try:
        with log.open("wb") as stream:
            stream.write(f"$ {shlex.join(masked_arguments(command))}\n".encode())
            stream.flush()
            status = run_child(
                command,
                cwd=program.folder,
                env=program.environment(),
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout_s=timeout_s,
            )
    except subprocess.TimeoutExpired:
        return f"it took more than {timeout_s:.0f} s and was ended ({log})"
    except OSError as error:
        return f"it could not be started: {problem_of(error)}"
    if status == 0:
        return ""
    lines = _last_lines(log)
    said = f": {lines[-1].strip()}" if lines else ""
    return f"it {_ended(status)}{said} ({log})"


def _ended(status: int) -> str:
    if status >= 0:
        return f"exited with {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _last_lines(log: Path) -> tuple[str, ...]:
    """The end of what a process printed, without the command in its first line."""
    try:
        with log.open("rb") as stream:
            # However much it printed. A line cut in two stands before those that are wanted.
            stream.seek(max(0, log.stat().st_size - _LAST_LINES * _LONGEST_LINE * 4))
            lines = stream.read().decode(errors="replace").splitlines()[1:]
    except OSError:
        return ()
    said = [line.rstrip()[:_LONGEST_LINE] for line in lines if line.strip()]
    return tuple(said[-_LAST_LINES:])


def _others() -> int:
    """Processes on the GPUs while ours does not run; 0 where NVML does not tell."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while (count := compute_processes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return count or 0
