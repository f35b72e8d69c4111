"""`gpuprof bench`."""

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.masked_arguments import masked_arguments
from gpuprof.collectors.plain_text import storable
from gpuprof.profiler.json_output import JsonOutput, add_json_or_file
from gpuprof.reports.json_answers.schemas import (
    BENCH,
    BENCH_CLAIMS,
    BENCH_LIST,
    BENCH_SIZES,
    JsonSchema,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuprof.reports.json_answers.of_machines import KernelFamily
    from gpuprof.roofline.bench.results import BenchReport

_BUDGET_S = 1.0


class BenchCommand:
    """Run kernels whose FLOPs and bytes are known, and compare them with the roof.

    Each version of a family (gemm/cublas, gemm/triton-tiled, ...) solves the same
    problem on random data. It is checked against float64, then timed. The results
    are a capture: summary and report show each version as a point on the roofline.
    Without a GPU the versions that run on a CPU do. Collectives run on all ranks
    of torchrun. --claims checks a table of claimed times against the hardware,
    and --file times functions of your own by size.
    """

    name = "bench"
    summary = "run the reference kernels or your own functions, or check a table of claims"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument(
            "wanted",
            nargs="*",
            metavar="FAMILY[/VERSION]",
            help="what to run (default: everything); --list names them. With --file: functions",
        )
        parser.add_argument(
            "--sizes",
            nargs="+",
            default=[],
            metavar="SIZE",
            help="sizes of one family, or of --file",
        )
        parser.add_argument(
            "--dtype", nargs="+", default=[], metavar="DTYPE", help="bf16, fp16, fp32, ..."
        )
        parser.add_argument("--device", help="cpu, cuda:0, ... (default: the GPU, else the CPU)")
        parser.add_argument(
            "--seconds",
            type=_seconds,
            default=_BUDGET_S,
            metavar="S",
            help=f"longest time to spend on timing one version ({_BUDGET_S:g})",
        )
        parser.add_argument(
            "--seed", type=int, metavar="N", help="seed of the random inputs (default: a new one)"
        )
        parser.add_argument(
            "-o",
            "--output",
            type=Path,
            metavar="CAPTURE",
            help="folder to write (gpuprof-bench-TIME.gpuprof here); with --file: FILE.html, .svg "
            "or .png with the plots",
        )
        add_json_or_file(parser, _schema)
        parser.add_argument(
            "-f", "--force", action="store_true", help="replace an old capture and FILE"
        )
        parser.add_argument(
            "--counters",
            action="store_true",
            help="call each version again under Nsight Compute and count its work",
        )
        parser.add_argument(
            "--file",
            type=Path,
            metavar="FILE.py",
            help="time the functions bench_NAME of FILE.py at each of its SIZES",
        )
        parser.add_argument("--list", action="store_true", help="list families and versions")
        parser.add_argument("--check", action="store_true", help="check the results without timing")
        parser.add_argument(
            "--claims",
            metavar="FILE",
            help="check the claims of FILE (.toml), or of a shipped table by its name",
        )
        parser.add_argument(
            "--measured",
            type=Path,
            metavar="BENCH",
            help="with --claims: the capture or JSON file of a bench on that GPU",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Exits with 1 where a version was wrong or failed."""
        if arguments.measured is not None and arguments.claims is None:
            raise CommandError("--measured needs --claims", exit_code=2)
        if arguments.file is not None:
            return _time_own(arguments)
        if arguments.list:
            return _list(arguments)
        if arguments.claims is not None:
            return _check_claims(arguments)
        return _bench_with_counters(arguments) if arguments.counters else _bench(arguments)


def _schema(arguments: argparse.Namespace) -> JsonSchema:
    if arguments.file is not None:
        return BENCH_SIZES
    if arguments.list:
        return BENCH_LIST
    return BENCH if arguments.claims is None else BENCH_CLAIMS


def _time_own(arguments: argparse.Namespace) -> int:
    """Functions of a file of the user. Exits with 1 where one failed."""
    from gpuprof.profiler.run.ranks import Ranks

    for option in ("list", "check", "claims", "counters", "dtype"):
        if getattr(arguments, option):
            raise CommandError(f"--{option} is of reference kernels, not of --file", exit_code=2)
    if not Ranks.from_environment().alone:
        raise CommandError("--file works for one process: start it without torchrun", exit_code=2)
    from gpuprof.collectors.files.writing import refuse_existing
    from gpuprof.profiler.bench.sizes_output import refuse_suffix, write_sizes
    from gpuprof.reports.bench.sizes_table import print_sizes
    from gpuprof.reports.console.streams import write_note
    from gpuprof.reports.console.terminal import stdout

    json = JsonOutput.of(arguments)
    json.refuse_existing(force=arguments.force)
    output: Path | None = arguments.output
    if output is not None:
        refuse_suffix(output, "-o")
        refuse_existing(output, force=arguments.force)
    from gpuprof.profiler.bench.functions import Conditions, time_functions
    from gpuprof.profiler.bench.own_file import read_subject

    subject = read_subject(arguments.file, arguments.wanted, arguments.sizes)
    seed = 0 if arguments.seed is None else arguments.seed
    conditions = Conditions(arguments.device, arguments.seconds, seed)
    report = time_functions(subject, conditions, keep_if_interrupted=True)
    json.write(BENCH_SIZES, report)
    if not json.alone:
        print_sizes(report, stdout())
    if output is not None:
        write_sizes(report, output)
        write_note(f"gpuprof: wrote {output}")
    if len(report.times) < len(subject.functions) * len(subject.sizes):
        return 128 + signal.SIGINT
    return int(any(one.error is not None for one in report.times))


def _bench_with_counters(arguments: argparse.Namespace) -> int:
    """The bench is a process of its own, so that its memory is free when its work is counted."""
    from gpuprof.profiler.run.counters_pass import Runs, run_with_counters
    from gpuprof.profiler.run.output import choose_output
    from gpuprof.profiler.run.own_process import interpreter_flags
    from gpuprof.profiler.run.ranks import Ranks
    from gpuprof.roofline.bench.results import BENCH_FILE

    if arguments.check:
        raise CommandError("--check times nothing, so there is nothing to count", exit_code=2)
    # Before the bench, which takes long. What it prints is the bench's own.
    json = JsonOutput.of(arguments)
    json.refuse_existing(force=arguments.force)
    if not Ranks.from_environment().alone:
        raise CommandError(
            "--counters works for one process: ncu replays the kernels of one rank alone, and NCCL "
            "would wait for the others for ever",
            exit_code=2,
        )
    output = choose_output(arguments.output, "bench", force=arguments.force)
    output.refuse_existing()
    python = (sys.executable, *interpreter_flags())
    options = (
        *("-o", str(output.requested), "--seconds", str(arguments.seconds)),
        *(("--device", arguments.device) if arguments.device else ()),
        *(("--seed", str(arguments.seed)) if arguments.seed is not None else ()),
        *(("--json", str(json.place)) if json.place is not None else ()),
        *(("--force",) if arguments.force else ()),
        *(("--sizes", *arguments.sizes) if arguments.sizes else ()),
        *(("--dtype", *arguments.dtype) if arguments.dtype else ()),
    )
    runs = Runs(
        first=(*python, "-m", "gpuprof", "bench", *arguments.wanted, *options),
        interpreter=python,
        program=(str(output.shown),),
        counted="gpuprof.profiler.bench.counted_bench",
        further=(BENCH_FILE,),
    )
    return run_with_counters(runs, output.shown, quiet=True)


def _bench(arguments: argparse.Namespace) -> int:
    # Kineto would tell of each start and stop of a profiler; it looks when torch is imported.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from gpuprof.profiler.bench.session import Request, run_bench
    from gpuprof.profiler.run.output import choose_output
    from gpuprof.reports.bench.table import print_bench
    from gpuprof.reports.console.streams import write_line, write_note
    from gpuprof.reports.console.terminal import stdout

    if arguments.check and arguments.output is not None:
        raise CommandError("--check times nothing, so there is nothing for -o", exit_code=2)
    output = None
    if not arguments.check:
        output = choose_output(arguments.output, "bench", force=arguments.force)
        output.refuse_existing()
    json = JsonOutput.of(arguments)
    json.refuse_existing(force=arguments.force)
    report = run_bench(
        Request(
            wanted=tuple(arguments.wanted),
            sizes=tuple(arguments.sizes),
            dtypes=tuple(arguments.dtype),
            device=arguments.device,
            budget_s=arguments.seconds,
            seed=_seed() if arguments.seed is None else arguments.seed,
            check_only=arguments.check,
            output=output,
            command=masked_arguments(map(storable, sys.argv)),
        )
    )
    if report is None:
        return 0
    if report.cases:
        json.write(BENCH, report)
    if not json.alone:
        print_bench(report, stdout())
    if output is not None and output.moved_because:
        write_note(f"gpuprof: {output.moved_because}; the capture is {output.shown}")
    if output is not None and output.stored and not json.alone:
        write_line(f"gpuprof summary {output.shown}")
    return _exit_code(report)


def _exit_code(report: "BenchReport") -> int:
    if not report.cases:
        reasons = "; ".join(dict.fromkeys(one.reason for one in report.skipped[:3]))
        raise CommandError(f"nothing to run here: {reasons}")
    return int(any(case.error is not None for case in report.cases))


def _seed() -> int:
    """A new one each second; the ranks of one torchrun must agree on it."""
    port = os.environ.get("MASTER_PORT")
    if port is not None and os.environ.get("WORLD_SIZE", "1") != "1":
        return int(port)
    return int(time.time())


def _list(arguments: argparse.Namespace) -> int:
    from gpuprof.reports.bench.families import family_table
    from gpuprof.reports.console.terminal import stdout
    from gpuprof.reports.json_answers.of_machines import Families

    json = JsonOutput.of(arguments)
    json.refuse_existing(force=arguments.force)
    families = tuple(_families())
    json.write(BENCH_LIST, Families(families))
    if not json.alone:
        console = stdout()
        for family in families:
            console.print(family_table(family))
    return 0


def _families() -> "Iterator[KernelFamily]":
    from gpuprof.reference_kernels.families import family_names, load_family
    from gpuprof.reports.json_answers.of_machines import KernelFamily, KernelVersion

    for name in family_names():
        family = load_family(name)
        versions = tuple(
            KernelVersion(
                name=one.name,
                devices=tuple(one.devices),
                requires=tuple(one.requires),
                dtypes=tuple(one.dtypes),
                summary=one.summary,
                plugin=one.plugin,
            )
            for one in family.versions
        )
        yield KernelFamily(name=name, size_form=family.problem.size_form, versions=versions)


def _check_claims(arguments: argparse.Namespace) -> int:
    from gpuprof.profiler.bench.reading import read_bench
    from gpuprof.reports.bench.claims import print_claims
    from gpuprof.reports.console.terminal import stdout
    from gpuprof.reports.json_answers.of_machines import JudgedClaims
    from gpuprof.roofline.claims.judge import judge
    from gpuprof.roofline.claims.table import load_table

    json = JsonOutput.of(arguments)
    json.refuse_existing(force=arguments.force)
    measured = None if arguments.measured is None else read_bench(arguments.measured)
    table = load_table(arguments.claims)
    judgements = judge(table, measured)
    if not json.alone:
        print_claims(table.source, judgements, stdout(), measured=measured)
    json.write(BENCH_CLAIMS, JudgedClaims(table.source, judgements))
    return 0


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds: 0.5, 1, 2, ...")
    return value
