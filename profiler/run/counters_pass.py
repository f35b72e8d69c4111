"""`gpuprof run --counters`: the program once more under Nsight Compute, for its largest kernels.

The first run is a child process too, so that the device memory it held is free for the second.
"""

import itertools
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias

import msgspec
import polars as pl

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError, CollectorError, GpuprofError
from gpuprof.collectors.joining.captures import join
from gpuprof.collectors.manifest import ENDED_BY_A_SIGNAL
from gpuprof.collectors.ncu.profile import CONDITIONS
from gpuprof.collectors.ncu.reader import read
from gpuprof.profiler.captures import load_analysis, store
from gpuprof.profiler.child_processes import run_child, sigterm_raises
from gpuprof.profiler.machine.checks import TOOL_PLACES, find_tool
from gpuprof.profiler.run.ending_signals import die_by
from gpuprof.reports.console.streams import write_note
from gpuprof.reports.console.terminal import stderr
from gpuprof.reports.formatting import counted
from gpuprof.reports.terminal import render_summary
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.measured.counters_plan import CountersPlan, plan_counters

# What a roofline needs and no more: each further group is one more replay of every launch.
METRICS: Final = (
    # Every source type that this GPU's tensor units count.
    "regex:^sm__ops_path_tensor_src_",
    # ncu finds no instruction counters by regular expression.
    *(
        f"smsp__sass_thread_inst_executed_op_{instruction}_pred_on.sum"
        for instruction in ("dadd", "dmul", "dfma", "fadd", "fmul", "ffma", "hadd", "hmul", "hfma")
    ),
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_bytes.sum",
    "gpu__time_duration.sum",
    "sm__cycles_elapsed.avg.per_second",
)
_Handler: TypeAlias = Callable[[int, FrameType | None], Any] | signal.Handlers
# As many captures of one name as are looked through.
_PLACES: Final = 100
_UNMODIFIED_CLOCKS: Final = "unmodified GPU clocks"


@dataclass(frozen=True)
class Runs:
    """The two command lines: both run the same program with the same arguments."""

    # `gpuprof run` without --counters, quiet, into the output.
    first: tuple[str, ...]
    # What ncu starts.
    second: tuple[str, ...]


def run_with_counters(runs: Runs, output: Path, *, quiet: bool) -> int:
    """Run the program, then count its largest kernels; this process ends as the first run did.

    Where nothing can be counted one line on stderr and the capture's warnings say why; the capture
    of the first run is kept as it is.
    """
    status, process = _run_first(runs.first)
    stored = _capture_of(process, output)
    if stored is None:
        # The program did not start; what stands there with --force is an older capture.
        return _ended_as(status)
    try:
        _add_counters(runs.second, stored)
    except (GpuprofError, OSError) as error:
        write_note(f"gpuprof: no counters: {error}")
        _add_warning(stored, f"no counters: {error}")
    except KeyboardInterrupt:
        write_note("gpuprof: no counters: interrupted; the capture is kept")
    if not quiet:
        render_summary(load_analysis(stored), stderr(), stored)
    return _ended_as(status)


def _ended_as(status: int) -> int:
    """The exit code of the first run; where a person's signal ended that, it ends us too."""
    if -status in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        die_by(signal.Signals(-status))
    return status if status >= 0 else 128 - status


def interpreter_flags() -> list[str]:
    """The options this interpreter was started with, as in `python -O -m gpuprof run ...`."""
    own_arguments = len(sys.argv) - 1
    head = sys.orig_argv[1 : len(sys.orig_argv) - own_arguments]
    # What is left ends with "-m gpuprof" or the path of the gpuprof script.
    return head[: -2 if head[-2:-1] == ["-m"] else -1]


def _capture_of(process: int, output: Path) -> Path | None:
    """Where the first run stored its capture: at `output` or beside it."""
    for place in itertools.islice(storage.names_beside(output), _PLACES):
        with suppress(CaptureError):
            manifest = storage.load_manifest(place)
            if storage.load_process(place, manifest.ranks[0]).process == process:
                return place
    return None


def _run_first(command: Sequence[str]) -> tuple[int, int]:
    """Its exit code, -N where a signal N ended it, and its process id.

    Signals that end us are its to answer.
    """
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    with _handling(signal.SIGTERM, forward):
        process = subprocess.Popen(command)
        for number in early:
            process.send_signal(number)
        # A terminal sends Ctrl-C to the child itself.
        with _handling(signal.SIGINT, signal.SIG_IGN):
            status = process.wait()
    return status, process.pid


def _run_second(command: Sequence[str], printed: Path) -> None:
    """Its output goes to a file: the first run's was shown. Ended with us, ncu and program both."""
    with printed.open("wb") as sink, sigterm_raises():
        run_child(command, stdout=sink, stderr=sink)


@contextmanager
def _handling(number: signal.Signals, handler: _Handler) -> Iterator[None]:
    previous = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, previous)


def _add_counters(program: Sequence[str], output: Path) -> None:
    """Raises `CollectorError` or `CaptureError` where nothing can be counted."""
    capture = storage.load(output)
    if capture.processes[0].ending in ENDED_BY_A_SIGNAL:
        return
    _refuse_what_cannot_be_replayed(capture)
    plan = plan_counters(capture)
    if plan is None:
        raise CollectorError("the first run shows no kernel on a GPU")
    ncu = find_tool("ncu", TOOL_PLACES["ncu"])
    if ncu is None:
        raise CollectorError(
            "Nsight Compute (ncu) is not on PATH; it comes with the CUDA toolkit, or by itself "
            "from developer.nvidia.com/nsight-compute"
        )
    with tempfile.TemporaryDirectory(prefix="gpuprof-counters-") as folder:
        report = _count(ncu, plan, program, Path(folder))
    joined = join([capture, report])
    store(joined, analyze(joined), output)


def _refuse_what_cannot_be_replayed(capture: Capture) -> None:
    device = capture.processes[0].fingerprint.devices[capture.processes[0].device :][:1]
    if device and device[0].kind != "cuda":
        raise CollectorError(
            f"Nsight Compute counts on NVIDIA GPUs; this program ran on a {device[0].kind.upper()}"
        )
    if (capture.kernels["kind"] == "collective").any():
        raise CollectorError(
            "the program communicates with other GPUs, which deadlocks when ncu replays a kernel "
            "of one rank alone; "
            "count a run of one process"
        )


def _count(ncu: str, plan: CountersPlan, program: Sequence[str], folder: Path) -> Capture:
    page, printed = folder / "counters.csv", folder / "printed.txt"
    command = [ncu, *ncu_options(plan, page), *program]
    kernels = counted(len(plan.kernels), "kernel")
    write_note(f"gpuprof: running the program again under ncu, for {kernels}")
    _run_second(command, printed)
    try:
        return _what_was_asked_for(read(page))
    except (CaptureError, OSError) as error:
        raise CollectorError(_why(error, printed)) from error


def ncu_options(plan: CountersPlan, page: Path) -> list[str]:
    """What `ncu` is told before the program's command line."""
    names = "|".join(map(re.escape, plan.kernels))
    return [
        *("--csv", "--page", "raw", "--print-units", "base", "--log-file", str(page)),
        *("--metrics", ",".join(METRICS)),
        *("--kernel-name", f"regex:^({names})$", "--launch-count", str(plan.launches)),
        *("--kill", "yes", "--target-processes", "application-only"),
        *("--profile-from-start", "no" if plan.one_step else "yes"),
        # Durations are not used, and the clocks are the user's.
        *("--clock-control", "none"),
    ]


def _what_was_asked_for(report: Capture) -> Capture:
    """`report` without the rates and percentages that the regular expression brings along.

    Nor has it remarks on clocks and durations: clocks were left alone, and durations are not used.
    """
    counters = report.counters.filter(
        pl.col("metric").str.ends_with(".sum") | pl.col("metric").is_in(METRICS)
    )
    processes = tuple(
        msgspec.structs.replace(
            process,
            warnings=tuple(
                text
                for text in process.warnings
                if text != CONDITIONS and _UNMODIFIED_CLOCKS not in text
            ),
        )
        for process in report.processes
    )
    return replace(report, processes=processes, counters=counters)


def _why(error: Exception, printed: Path) -> str:
    """The page's own reason, or where ncu left none, the last line that was printed."""
    if isinstance(error, CaptureError):
        return "; ".join(part for part in (error.problem, error.remedy) if part)
    lines = printed.read_text(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"ncu wrote nothing; its last line: {last[:300]}" if last else "ncu wrote nothing"


def _add_warning(output: Path, warning: str) -> None:
    capture = storage.load(output)
    first, *others = capture.processes
    first = msgspec.structs.replace(first, warnings=(*first.warnings, warning))
    capture = capture.with_processes((first, *others))
    store(capture, analyze(capture), output)
