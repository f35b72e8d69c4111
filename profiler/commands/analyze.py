"""`gpuprof analyze`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.amounts import whole
from gpuprof.profiler.json_output import add_json, write_json
from gpuprof.reports.json_answers.schemas import SUMMARY

if TYPE_CHECKING:
    from gpuprof.collectors.capture import Capture
    from gpuprof.reports.console.progress import StageProgress
    from gpuprof.roofline.analysis import Analysis

_CHROME_SUFFIXES = (".json", ".json.gz")
# Files of a folder that are read into one capture, where nothing else is asked for.
_MOST_IN_ONE_CAPTURE = 64


class AnalyzeCommand:
    """Turn other tools' traces into a capture and print its summary.

    Reads PyTorch profiler traces (.json, .json.gz), Nsight Systems .sqlite,
    .parquetdir and .nsys-rep, Nsight Compute .ncu-rep, .ncu-repz and .csv,
    memory snapshots of PyTorch (.pickle), dumps of its flight recorder, logs of
    NCCL, and captures of gpuprof. A folder is the set of ranks of one job.
    Several paths are files of one run and are joined: a trace and the counters of
    its kernels.

    With --workers, --cluster or many traces each rank is read by itself, from a
    folder or an address such as s3://bucket/run, and the capture holds the tables
    of the one that is shown.
    """

    name = "analyze"
    summary = "read traces of PyTorch, Nsight Systems and Nsight Compute"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument("paths", nargs="+", metavar="PATH", help="file or folder, or address")
        parser.add_argument(
            "-o",
            "--output",
            type=Path,
            metavar="CAPTURE",
            help="capture folder (named after the first path, in the working directory)",
        )
        parser.add_argument("-f", "--force", action="store_true", help="replace old files")
        printed = parser.add_mutually_exclusive_group()
        printed.add_argument("-q", "--quiet", action="store_true", help="print no summary")
        add_json(printed, SUMMARY)
        parser.add_argument(
            "--rank", type=int, metavar="R", help="the rank to analyse (default: the first)"
        )
        readers = parser.add_mutually_exclusive_group()
        readers.add_argument(
            "--workers",
            type=whole,
            metavar="N",
            help="read ranks with N processes of this machine",
        )
        readers.add_argument(
            "--cluster",
            metavar="ADDRESS",
            help="read ranks on the workers of the Dask scheduler at ADDRESS",
        )
        parser.add_argument(
            "--step-range",
            metavar="NAME",
            help="the ranges of this name (NVTX, record_function) are the steps",
        )
        parser.add_argument(
            "--to-chrome",
            type=Path,
            metavar="FILE",
            help="also write all ranks, or that of --rank, as a Chrome trace for Perfetto: "
            ".json or .json.gz",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CommandError` before any work, and `CaptureError`."""
        from gpuprof.profiler.reading_process import import_polars

        import_polars()
        from gpuprof.collectors.storage import refuse_existing_capture
        from gpuprof.profiler import traces
        from gpuprof.profiler.captures import store
        from gpuprof.reports.console.progress import showing_stages
        from gpuprof.reports.console.streams import write_note

        paths = [Path(path) for path in arguments.paths]
        output = arguments.output or default_output(paths)
        if output is not None:
            refuse_existing_capture(output, force=arguments.force)
        check_chrome_file(arguments.to_chrome, paths, force=arguments.force)
        places = _one_by_one(arguments)

        with showing_stages(hidden=arguments.quiet) as progress:
            further: dict[str, bytes] = {}
            if places:
                capture, analysis, further = _of_job(places, arguments, progress)
            else:
                capture = traces.read_run(paths, progress, step_range=arguments.step_range)
                progress("Analysing")
                analysis = traces.analyze_rank(capture, arguments.rank)
            if output is not None:
                progress(f"Writing {output}")
                store(capture, analysis, output, further=further)
            if arguments.to_chrome is not None:
                progress(f"Writing {arguments.to_chrome}")
                traces.write_chrome_trace(
                    capture, analysis, arguments.to_chrome, every_rank=arguments.rank is None
                )
        if arguments.to_chrome is not None and not arguments.quiet:
            write_note(f"gpuprof: wrote {arguments.to_chrome}")
        if arguments.json:
            from gpuprof.reports.json_answers.of_captures import Summary

            write_json(SUMMARY, Summary.of(analysis))
        elif not arguments.quiet:
            _print_summary(capture, analysis, paths[0] if output is None else output)
        return 0


def _one_by_one(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The files of ranks where each is read by itself; () where all become one capture."""
    from gpuprof.profiler.cluster.places import files_of_ranks, is_address

    asked = arguments.workers is not None or arguments.cluster is not None
    asked = asked or any(map(is_address, arguments.paths))
    if not asked and not all(Path(path).is_dir() for path in arguments.paths):
        return ()
    places = tuple(place for path in arguments.paths for place in files_of_ranks(path))
    return places if asked or len(places) > _MOST_IN_ONE_CAPTURE else ()


def _of_job(
    places: Sequence[str], arguments: argparse.Namespace, progress: "StageProgress"
) -> "tuple[Capture, Analysis, dict[str, bytes]]":
    """The shown rank's capture and analysis, and the file that holds the summaries of all."""
    from gpuprof.collectors.opening import run_name
    from gpuprof.collectors.plain_text import storable
    from gpuprof.profiler.cluster.analysis import (
        Workers,
        analyze_of_job,
        capture_of_rank,
        read_job,
    )
    from gpuprof.profiler.cluster.job import JOB_FILE, encode_job

    progress("Starting")
    job = read_job(
        storable(run_name(Path(arguments.paths[0]))),
        places,
        Workers(arguments.workers, arguments.cluster),
        lambda done: progress(f"Reading ranks: {done:,} of {len(places):,} files"),
        arguments.step_range,
    )
    progress("Analysing")
    capture = capture_of_rank(job, arguments.rank, arguments.step_range)
    return capture, analyze_of_job(job, capture), {JOB_FILE: encode_job(job)}


def default_output(paths: Sequence[Path]) -> Path | None:
    """A capture in the working directory, named after the first path.

    None for one path that is a capture already: there is nothing new to store.
    """
    from gpuprof.collectors.opening import run_name
    from gpuprof.collectors.storage import is_capture

    if len(paths) == 1 and is_capture(paths[0]):
        return None
    return Path(f"{run_name(paths[0])}.gpuprof")


def check_chrome_file(file: Path | None, paths: Sequence[Path], *, force: bool) -> None:
    """Raise `CommandError` where the Chrome trace may not be written to `file`."""
    from gpuprof.collectors.files.writing import refuse_existing

    if file is None:
        return
    if not file.name.lower().endswith(_CHROME_SUFFIXES):
        expected = " or ".join(_CHROME_SUFFIXES)
        raise CommandError(f"--to-chrome {file}: the name must end in {expected}", exit_code=2)
    refuse_existing(file, force=force, option="--to-chrome")
    if file.resolve() in [path.resolve() for path in paths]:
        raise CommandError(f"{file} will not be replaced; choose another --to-chrome")


def _print_summary(capture: "Capture", analysis: "Analysis", path: Path) -> None:
    from gpuprof.reports.console.streams import write_line
    from gpuprof.reports.console.terminal import stdout
    from gpuprof.reports.terminal import render_summary

    ranks = capture.manifest.ranks
    if len(ranks) > 1:
        listed = ", ".join(map(str, ranks))
        write_line(
            f"{len(ranks)} ranks: {listed}. This is rank {analysis.rank}; --rank R shows another."
        )
        write_line()
    render_summary(analysis, stdout(), path)
