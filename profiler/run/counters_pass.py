"""`gpuprof run --counters`: the program once more under Nsight Compute, for what could gain most.

The first run is a child process too, so that the device memory it held is free for the second.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.counting import CountingPass
from gpuprof.collectors.errors import CaptureError, CollectorError, GpuprofError, describe
from gpuprof.collectors.files.temporary import temporary_folder
from gpuprof.collectors.joining.captures import with_first_launches
from gpuprof.collectors.joining.launch_keys import KEY
from gpuprof.collectors.manifest import ENDED_BY_A_SIGNAL
from gpuprof.collectors.ncu.profile import CONDITIONS
from gpuprof.collectors.ncu.reader import read
from gpuprof.collectors.tools import find_tool
from gpuprof.profiler.captures import load_analysis, store
from gpuprof.profiler.child_processes import ending_signals_raise, run_child
from gpuprof.profiler.page_output import PageOutput
from gpuprof.profiler.run.own_process import add_warning, capture_of, ended_as, run_program
from gpuprof.profiler.run.telling import tell_of
from gpuprof.reports.console.streams import write_note
from gpuprof.reports.formatting import counted, percent
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.counting.plan import (
    CountersPlan,
    plan_counters,
    window_of,
)
from gpuprof.roofline.measured.metric_table import TENSOR_METRICS, metrics_to_collect
from gpuprof.roofline.points.process_roofs import device_of

# Of counting. Beside it a program needs the time to start and to warm up: together they are to stay
# under 90 s for a training step.
COUNTING_SECONDS: Final = 60
_UNMODIFIED_CLOCKS: Final = "unmodified GPU clocks"


@dataclass(frozen=True)
class Runs:
    """The two command lines: both run the same program with the same arguments."""

    # The same command without --counters, into the output.
    first: tuple[str, ...]
    # Python with its options, and what is given to the module that ncu starts: how steps are found,
    # and the program with its arguments.
    interpreter: tuple[str, ...]
    program: tuple[str, ...]
    counted: str = "gpuprof.profiler.run.counted_program"
    # Files beside the tables of the first run's capture, which stay with it.
    further: tuple[str, ...] = ()


def run_with_counters(
    runs: Runs, output: Path, *, quiet: bool, page: PageOutput | None = None
) -> int:
    """Run the program, then count kernels of it; this process ends as the first run did.

    Where nothing can be counted one line on stderr and the capture's warnings say why; the capture
    of the first run is kept as it is.
    """
    status, process = run_program(runs.first)
    stored = capture_of(process, output)
    if stored is None:
        # The program did not start; what stands there with --force is an older capture.
        return ended_as(status)
    further = {
        name: (stored / name).read_bytes() for name in runs.further if (stored / name).is_file()
    }
    try:
        _add_counters(runs, stored, further)
    except (GpuprofError, OSError) as error:
        write_note(f"gpuprof: no counters: {describe(error)}")
        add_warning(stored, f"no counters: {describe(error)}", further=further)
    except KeyboardInterrupt:
        write_note("gpuprof: no counters: interrupted; the capture is kept")
    tell_of(stored, page, quiet=quiet)
    return ended_as(status)


def _run_second(command: Sequence[str], printed: Path) -> None:
    """Its output goes to a file: the first run's was shown. Ended with us, ncu and program both."""
    with printed.open("wb") as sink, ending_signals_raise():
        run_child(command, stdout=sink, stderr=sink)


def _add_counters(runs: Runs, output: Path, further: Mapping[str, bytes]) -> None:
    """Raises `CollectorError` or `CaptureError` where nothing can be counted."""
    capture = storage.load(output)
    if capture.processes[0].ending in ENDED_BY_A_SIGNAL:
        return
    _refuse_what_cannot_be_replayed(capture)
    plan = plan_counters(capture, load_analysis(output))
    if plan is None:
        raise CollectorError("the first run shows no kernel on a GPU")
    ncu = find_tool("ncu")
    if ncu is None:
        raise CollectorError(
            "Nsight Compute (ncu) is not on PATH; it comes with the CUDA toolkit, or by itself "
            "from developer.nvidia.com/nsight-compute"
        )
    command = (
        *(*runs.interpreter, "-m", runs.counted, "--seconds", str(COUNTING_SECONDS)),
        *(() if plan.one_step else ("--from-start",)),
        *runs.program,
    )
    device = device_of(capture.processes[0])
    metrics = metrics_to_collect(None if device is None else device.compute_capability)
    begun = time.monotonic()
    with temporary_folder("counters") as folder:
        report = _count(ncu, plan, metrics, command, folder)
    joined = with_first_launches(capture, report, window_of(capture, one_step=plan.one_step))
    counting = CountingPass(
        chosen=plan.launches,
        counted=report.kernels.height,
        joined=joined.counters.select(KEY).n_unique(),
        time_fraction=plan.time_fraction,
        gain_fraction=plan.gain_fraction,
        seconds=time.monotonic() - begun,
        limit_s=COUNTING_SECONDS,
    )
    process = msgspec.structs.replace(joined.processes[0], counting=counting)
    joined = joined.with_processes((process, *joined.processes[1:]))
    store(joined, analyze(joined), output, further=further)


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


def _count(
    ncu: str, plan: CountersPlan, metrics: Sequence[str], program: Sequence[str], folder: Path
) -> Capture:
    page, printed = folder / "counters.csv", folder / "printed.txt"
    command = [ncu, *ncu_options(plan, metrics, page), *program]
    launches = counted(plan.launches, "launch", "launches")
    write_note(
        f"gpuprof: running the program again under ncu, for {launches} with "
        f"{percent(plan.gain_fraction)} of the kernels' time above their roofs; counting ends "
        f"after {COUNTING_SECONDS} s"
    )
    _run_second(command, printed)
    try:
        return _what_was_asked_for(read(page), metrics)
    except (CaptureError, OSError) as error:
        raise CollectorError(_why(error, printed)) from error


def ncu_options(plan: CountersPlan, metrics: Sequence[str], page: Path) -> list[str]:
    """What `ncu` is told before the program's command line."""
    names = "|".join(map(re.escape, plan.kernels))
    return [
        *("--csv", "--page", "raw", "--print-units", "base", "--log-file", str(page)),
        *("--metrics", ",".join(metrics)),
        *("--kernel-name", f"regex:^({names})$"),
        *("--filter-mode", "per-launch-config", "--launch-count", str(plan.launches_of_each)),
        *("--target-processes", "application-only"),
        *("--profile-from-start", "no" if plan.one_step else "yes"),
        # Durations are not used, and the clocks are the user's.
        *("--clock-control", "none"),
    ]


def _what_was_asked_for(report: Capture, metrics: Sequence[str]) -> Capture:
    """`report` without the rates and percentages that the regular expression brings along.

    Nor has it remarks on clocks and durations: clocks were left alone, and durations are not used.
    """
    counters = report.counters.filter(
        pl.col("metric").is_in(metrics)
        | (
            pl.col("metric").str.starts_with(TENSOR_METRICS)
            & pl.col("metric").str.ends_with(".sum")
        )
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
