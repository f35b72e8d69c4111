"""The whole table of gpuprof's speed, beside the library's or the peer's, on this machine.

    python benchmarks/performance.py [--write docs/performance.md] gpu [--only WORD] [--seconds S]
    python benchmarks/performance.py [--write docs/performance.md] cpu [--trace TRACE]
        [--hta PYTHON] [--tracelens PYTHON]

`gpu` runs reference kernels by `gpuprof bench` as performance.toml says, each beside its library in
one process. `cpu` reads a PyTorch trace, beside other tools in environments of their own and with
one core and with all, and measures what `gpuprof run`, `gpuprof.step()` and the gate cost beside
the script alone. Each row is a ratio of two figures of one run, and says what is wanted of it.
--write puts the table into a page, in place of the last one of this machine.
"""

import argparse
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

import gate_process
import kineto_speed
import long_run
import msgspec
import numpy as np
import run_overhead
import torch

from gpuprof.reference_kernels.families import load_family
from gpuprof.roofline.bench.libraries import is_library
from gpuprof.roofline.bench.rates import rates, roofs_of
from gpuprof.roofline.bench.results import BenchReport, CaseResult

TABLE = Path(__file__).with_suffix(".toml")
_ROUNDS = 3
# Wanted: docs/performance.md.
_TIMES_HTA = 15.0
_SECONDS_OUTSIDE = 2.0
_LONGER_STEP = 0.002
_MARKING_S = 0.05
HEADINGS = ("what", "gpuprof", "beside", "ratio", "wanted", "reached")


class KernelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of performance.toml."""

    what: str
    family: str
    dtype: str
    sizes: tuple[str, ...]
    beside: Literal["library", "copy", "datasheet"]
    # Of the median size, and of each.
    wanted: float
    least: float | None = None
    # Of gpuprof's versions these run; without any, all.
    versions: tuple[str, ...] = ()

    @property
    def labels(self) -> list[str]:
        """What `gpuprof bench` is asked for."""
        return [
            version.label
            for version in load_family(self.family).versions
            if not self.versions or version.name in self.versions or is_library(version.name)
        ]


class Kernels(msgspec.Struct, frozen=True):
    """performance.toml."""

    kernel: tuple[KernelRow, ...]


@dataclass(frozen=True)
class Row:
    """One line of the table: gpuprof's figure, the other's, what one is of the other."""

    what: str
    own: str
    beside: str
    ratio: str
    # Empty where nothing is promised.
    wanted: str
    reached: bool

    @classmethod
    def of_share(cls, what: str, own: str, beside: str, share: float, wanted: float) -> "Row":
        """A kernel's share of the library's or the roof's rate."""
        return cls(what, own, beside, f"{share:.1%}", f"{wanted:.0%}", share >= wanted)

    @property
    def cells(self) -> tuple[str, ...]:
        """What stands in the table."""
        reached = "" if not self.wanted else "yes" if self.reached else "no"
        return self.what, self.own, self.beside, self.ratio, self.wanted, reached


def bench(wanted: Sequence[str], options: Sequence[str]) -> BenchReport:
    """What `gpuprof bench` says. Exits where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "bench.json"
        command = [sys.executable, "-m", "gpuprof", "bench", *wanted, *options]
        done = subprocess.run(
            [*command, "--json", str(result), "-o", f"{folder}/bench.gpuprof"],
            capture_output=True,
            text=True,
            check=False,
        )
        if not result.exists():
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
        return msgspec.json.decode(result.read_bytes(), type=BenchReport)


def fastest(cases: Sequence[CaseResult]) -> CaseResult | None:
    """The one with the least median."""
    timed = (case for case in cases if case.median_ns is not None and case.error is None)
    return min(timed, key=lambda case: case.median_ns or 0, default=None)


def kernel_rows(row: KernelRow, report: BenchReport, copy_bytes_per_s: float) -> Iterator[Row]:
    """A line for each size, and for several their median."""
    shares = []
    for size in row.sizes:
        cases = [case for case in report.cases if case.size == size]
        ours = fastest([case for case in cases if not is_library(case.version)])
        library = fastest([case for case in cases if is_library(case.version)])
        if ours is None or ours.median_ns is None:
            print(f"{row.what} {size}: no version of gpuprof ran", file=sys.stderr)
            continue
        if row.beside == "datasheet":
            reached = rates(ours, roofs_of(report))
            share = None if reached is None else reached.of_datasheet
            beside = "datasheet"
        elif row.beside == "copy":
            share = ours.bytes_moved / (ours.median_ns / 1e9) / copy_bytes_per_s
            beside = f"copy, {copy_bytes_per_s / 1e12:.2f} TB/s"
        elif library is not None and library.median_ns is not None:
            share = library.median_ns / ours.median_ns
            beside = f"{library.version}, {library.median_ns / 1e3:.1f} µs"
        else:
            share = None
        if share is None:
            print(f"{row.what} {size}: nothing to compare with", file=sys.stderr)
            continue
        wanted = row.wanted if len(row.sizes) == 1 else row.least or row.wanted
        own = f"{ours.version}, {ours.median_ns / 1e3:.1f} µs"
        shares.append(share)
        yield Row.of_share(f"{row.what} {size}", own, beside, share, wanted)
    if len(shares) > 1:
        median = statistics.median(shares)
        what = f"{row.what}, median of {len(shares)}"
        yield Row.of_share(what, "", row.beside, median, row.wanted)


def gpu(arguments: argparse.Namespace) -> Iterator[Row]:
    """The reference kernels on this GPU."""
    table = msgspec.toml.decode(TABLE.read_bytes(), type=Kernels)
    kernels = [row for row in table.kernel if arguments.only in row.what]
    seconds = ("--seconds", str(arguments.seconds))
    copy_bytes_per_s = 0.0
    if any(row.beside == "copy" for row in kernels):
        copy = fastest(bench(["stream"], ["--sizes", "copy:1GiB", *seconds]).cases)
        if copy is None or not copy.median_ns:
            sys.exit("no copy was timed")
        copy_bytes_per_s = copy.bytes_moved / (copy.median_ns / 1e9)
    for row in kernels:
        options = ("--sizes", *row.sizes, "--dtype", row.dtype, *seconds)
        yield from kernel_rows(row, bench(row.labels, options), copy_bytes_per_s)


def cpu(arguments: argparse.Namespace) -> Iterator[Row]:
    """Reading traces and what running a program costs, on the CPU."""
    if arguments.trace is not None:
        yield from trace_rows(arguments.trace, arguments.hta, arguments.tracelens)
        yield cores_row(arguments.trace)
    yield from overhead_rows()
    yield marking_row()
    yield gate_row()


def trace_rows(trace: Path, hta: str | None, tracelens: str | None) -> Iterator[Row]:
    """From the file to its analysis, beside tools that read the same file."""
    tools = [kineto_speed.gpuprof(), *kineto_speed.peers(hta, tracelens)]
    runs = [[kineto_speed.measure(tool, trace) for tool in tools] for _ in range(_ROUNDS)]
    medians = [
        statistics.median(each.seconds for each in column) for column in zip(*runs, strict=True)
    ]
    memory = statistics.median(each[0].memory_bytes for each in runs)
    size = f"{trace.stat().st_size / 1e6:.0f} MB"
    own = f"{medians[0]:.2f} s, {memory / 1e9:.2f} GB"
    for tool, seconds in zip(tools[1:], medians[1:], strict=True):
        times = seconds / medians[0]
        wanted = _TIMES_HTA if tool.name == "HTA" else None
        yield Row(
            f"PyTorch trace of {size}, file to analysis",
            own,
            f"{tool.name}, {seconds:.2f} s",
            f"{times:.1f} times as fast",
            "" if wanted is None else f"{wanted:g} times",
            wanted is None or times >= wanted,
        )


def cores_row(trace: Path) -> Row:
    """The same with one core and with all that there are, up to eight."""
    most = min(kineto_speed.ALL_CORES, 8)
    tools = [kineto_speed.gpuprof(cores) for cores in (1, most)]
    runs = [[kineto_speed.measure(tool, trace).seconds for tool in tools] for _ in range(_ROUNDS)]
    one, all_of_them = (statistics.median(column) for column in zip(*runs, strict=True))
    # Eight cores in a quarter of the time of one: by Amdahl's law 6/7 of the work is in parallel.
    wanted = 1 / (1 / 7 + 6 / 7 / most)
    return Row(
        f"the same trace with {most} cores",
        f"{all_of_them:.2f} s",
        f"one core, {one:.2f} s",
        f"{one / all_of_them:.2f} times as fast",
        f"{wanted:.2f} times",
        one / all_of_them >= wanted,
    )


def overhead_rows() -> Iterator[Row]:
    """What `gpuprof run` adds outside the script, and to a step after the profiled ones."""
    outside = [part for part in run_overhead.PARTS if part != "longest step"]
    rounds = run_overhead.measure_in_turns(_ROUNDS, steps=200, layers=24)
    alone, ours = (
        statistics.median(sum(one[kind][part] for part in outside) for one in rounds)
        for kind in run_overhead.KINDS
    )
    yield Row(
        "`gpuprof run`, before, first step and after",
        f"{ours:.2f} s",
        f"python, {alone:.2f} s",
        f"{ours - alone:+.2f} s",
        f"{_SECONDS_OUTSIDE:g} s",
        ours - alone <= _SECONDS_OUTSIDE,
    )
    times = long_run.measure(["alone", "run"], 5_000, 6, looks=False)
    longer = float(np.median(times["run"][:, 0] / times["alone"][:, 0])) - 1
    yield Row(
        "a step after the profiled ones, processor time",
        "`gpuprof run`",
        "the script alone",
        f"{longer:+.2%}",
        f"{_LONGER_STEP:.1%}",
        longer <= _LONGER_STEP,
    )


def marking_row() -> Row:
    """The first `gpuprof.step()` of a program that nobody records, import included."""
    program = (
        "import time\nbegin = time.perf_counter()\nimport torch\nbetween = time.perf_counter()\n"
        "import gpuprof\ngpuprof.step()\nend = time.perf_counter()\n"
        "print(between - begin, end - between)"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True
        ).stdout.split()
        for _ in range(_ROUNDS)
    ]
    torch_s, own_s = (statistics.median(map(float, column)) for column in zip(*found, strict=True))
    return Row(
        "`import gpuprof` and the first `gpuprof.step()`",
        f"{own_s * 1e3:.1f} ms",
        f"import torch, {torch_s:.2f} s",
        f"{own_s / torch_s:.1%}",
        f"{_MARKING_S * 1e3:g} ms",
        own_s <= _MARKING_S,
    )


def gate_row() -> Row:
    """A process of the gate, beside its program alone."""
    costs = gate_process.measure_in_turns(_ROUNDS, gate_process.SCRIPT)
    alone, ours = (min(each.cpu_s for each in costs[name]) for name in gate_process.KINDS[:2])
    return Row(
        "a process of the gate, processor time",
        f"{ours:.2f} s",
        f"the script alone, {alone:.2f} s",
        f"{ours / alone:.2f} times",
        "",
        True,
    )


def machine(kind: str) -> str:
    """The heading of this machine's section."""
    if kind == "gpu":
        name = torch.cuda.get_device_name()
    else:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line for line in lines if line.startswith("model name")), "a CPU")
        name = f"{model.partition(':')[2].strip() or model}, {len(os.sched_getaffinity(0))} cores"
    return name


def section(heading: str, rows: Sequence[Row]) -> str:
    """The table as Markdown."""
    conditions = f"{date.today()}, Python {platform.python_version()}, torch {torch.__version__}"
    load = f"load {os.getloadavg()[1]:.1f}"
    lines = [f"## {heading}", "", f"{conditions}, {load}.", ""]
    lines += [f"| {' | '.join(cells)} |" for cells in (HEADINGS, ("---",) * len(HEADINGS))]
    lines += [f"| {' | '.join(row.cells)} |" for row in rows]
    return "\n".join(lines) + "\n"


def put(page: Path, heading: str, text: str) -> None:
    """Replace the section under `heading` of `page`, or append it."""
    before, *sections = page.read_text().split("\n## ")
    kept = [one for one in sections if one.partition("\n")[0] != heading]
    parts = [before.rstrip("\n"), *(f"## {one.strip()}" for one in kept), text.rstrip("\n")]
    page.write_text("\n\n".join(parts) + "\n")


def main() -> None:
    """Measure, print the table, and put it into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page")
    kinds = parser.add_subparsers(dest="kind", required=True)
    of_gpu = kinds.add_parser("gpu")
    of_gpu.add_argument("--only", default="", metavar="WORD", help="rows with this in their name")
    of_gpu.add_argument("--seconds", type=float, default=1.0, help="as of gpuprof bench")
    of_cpu = kinds.add_parser("cpu")
    of_cpu.add_argument("--trace", type=Path, help="a PyTorch trace")
    of_cpu.add_argument("--hta", metavar="PYTHON", help="interpreter of an environment with HTA")
    of_cpu.add_argument("--tracelens", metavar="PYTHON", help="the same for TraceLens")
    arguments = parser.parse_args()
    if arguments.write is not None and not arguments.write.is_file():
        parser.error(f"--write {arguments.write}: there is no such page; an empty file will do")
    # A bench that goes on alone would hold the device that the next program measures.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    heading = machine(arguments.kind)
    rows: list[Row] = []
    for row in gpu(arguments) if arguments.kind == "gpu" else cpu(arguments):
        rows.append(row)
        print("  ".join(row.cells), flush=True)
        # A run that is cut short leaves what it has.
        if arguments.write is not None:
            put(arguments.write, heading, section(heading, rows))
    print(f"\n{section(heading, rows)}")


if __name__ == "__main__":
    main()
