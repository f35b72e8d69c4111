"""Compares device time with HolisticTraceAnalysis: busy and idle, compute and non-compute.

    python benchmarks/compare_with_hta.py [--hta-python PYTHON] TRACE...

PYTHON is an interpreter with HolisticTraceAnalysis 0.5.0, best in an environment of its own. HTA is
asked for whole nanoseconds (HTA_DISABLE_NS_ROUNDING) and for the last step too. gpuprof's figures
come twice: of all device work, and of the work that HTA keeps, under HTA's definitions.
"""

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import polars as pl
from rich.console import Console
from rich.table import Table

from gpuprof.collectors import kineto
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.work.attribution import launch_of_kernels

_HTA_PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
names = ("idle_time(us)", "compute_time(us)", "non_compute_time(us)", "kernel_time(us)")
print("RESULT", json.dumps([round(float(row[name]) * 1000) for name in names]))
"""
# HTA's parser writes progress to stdout.
_RESULT = "RESULT "
_AGREEMENT = 0.001


@dataclass(frozen=True)
class Split:
    """From the start of the first to the end of the last piece of device work, in ns."""

    idle_ns: int
    compute_ns: int
    other_ns: int

    @property
    def span_ns(self) -> int:
        """The parts together."""
        return self.idle_ns + self.compute_ns + self.other_ns


def hta_split(python: str, trace: Path) -> Split | str:
    """What HTA says, or why it says nothing."""
    finished = subprocess.run(
        [python, "-c", _HTA_PROGRAM, str(trace.absolute())],
        env={**os.environ, "HTA_DISABLE_NS_ROUNDING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    for line in finished.stdout.splitlines():
        if line.startswith(_RESULT):
            return Split(*msgspec.json.decode(line.removeprefix(_RESULT), type=list[int])[:3])
    return finished.stderr.strip().splitlines()[-1]


def own_split(kernels: pl.DataFrame) -> Split | str:
    """The split of these pieces of device work; compute is what neither copies nor communicates."""
    if kernels.is_empty():
        return "no device work"
    compute_ns = union_ns(kernels.filter(pl.col("kind") == "kernel"))
    busy_ns = union_ns(kernels)
    span_ns = int(kernels["end_ns"].max() - kernels["start_ns"].min())  # type: ignore[operator]
    return Split(span_ns - busy_ns, compute_ns, busy_ns - compute_ns)


def union_ns(kernels: pl.DataFrame) -> int:
    """Time in which at least one of `kernels` runs."""
    ordered = kernels.sort("start_ns")
    reached = pl.col("end_ns").cum_max().shift(1).fill_null(pl.col("start_ns"))
    covered = pl.col("end_ns") - pl.max_horizontal("start_ns", reached)
    return int(ordered.select(covered.clip(lower_bound=0).sum()).item())


def as_hta_selects(capture: Capture) -> pl.DataFrame:
    """The device work that HTA keeps: with several steps, what was launched before the last ends.

    Work whose launch is not in the trace is dropped with it.
    """
    if capture.steps.height < 2:
        return capture.kernels
    launched = launch_of_kernels(capture)["launch_ns"]
    return capture.kernels.filter(launched <= capture.steps["end_ns"].max())


def main() -> int:
    """Print one row a trace and source."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("--hta-python", default=sys.executable, metavar="PYTHON")
    arguments = parser.parse_args()
    probe = subprocess.run([arguments.hta_python, "-c", "import hta"], capture_output=True)
    if probe.returncode != 0:
        print(
            f"skipped: {arguments.hta_python} has no HolisticTraceAnalysis; make an environment "
            "with `pip install HolisticTraceAnalysis==0.5.0` and pass its --hta-python"
        )
        return 0
    table = Table("Trace", "Source", "Idle µs", "Compute µs", "Non-compute µs", "Agrees")
    for trace in arguments.traces:
        capture = kineto.read(trace)
        theirs = hta_split(arguments.hta_python, trace)
        table.add_row(trace.name, "HTA", *cells(theirs), "")
        selected = own_split(as_hta_selects(capture))
        table.add_row("", "gpuprof, HTA's selection", *cells(selected), agreement(selected, theirs))
        table.add_row("", "gpuprof, all work", *cells(own_split(capture.kernels)), "")
    Console().print(table)
    return 0


def cells(split: Split | str) -> tuple[str, str, str]:
    """The parts in microseconds, or the reason in place of the first."""
    if isinstance(split, str):
        return split[:60], "", ""
    idle, compute, other = split.idle_ns, split.compute_ns, split.other_ns
    return f"{idle / 1000:.3f}", f"{compute / 1000:.3f}", f"{other / 1000:.3f}"


def agreement(ours: Split | str, theirs: Split | str) -> str:
    """Whether every part is equal within 0.1 % of the span."""
    if isinstance(ours, str) or isinstance(theirs, str):
        return ""
    parts = ("idle_ns", "compute_ns", "other_ns")
    worst = max(abs(getattr(ours, part) - getattr(theirs, part)) for part in parts)
    share = worst / ours.span_ns
    return f"{'yes' if share <= _AGREEMENT else 'NO'} ({share:.4%})"


if __name__ == "__main__":
    sys.exit(main())
