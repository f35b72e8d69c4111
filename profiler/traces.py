"""Traces of other tools -> a capture with its analysis, stored or written out. Without torch."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from isal import igzip

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CommandError, reason
from gpuprof.collectors.files.writing import whole_file
from gpuprof.collectors.link_calibration import LinkCalibration
from gpuprof.collectors.live.fingerprint import accelerators
from gpuprof.collectors.live.nvml.library import ask, device_count, text
from gpuprof.collectors.manifest import Calibration, ProcessInfo
from gpuprof.collectors.opening import open_traces
from gpuprof.profiler.machine import calibration_cache
from gpuprof.profiler.machine.link_calibration_cache import load_links
from gpuprof.profiler.step_range import with_steps
from gpuprof.reports import formatting
from gpuprof.reports.chrome.trace import chrome_trace
from gpuprof.reports.console.progress import StageProgress
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.ranks.summarise import all_summaries
from gpuprof.roofline.work.attribution import attribute


def read_run(
    paths: Sequence[Path], progress: StageProgress, *, step_range: str | None = None
) -> Capture:
    """The attributed capture of the files, folders and captures of one run.

    Its steps are the ranges called `step_range`; without it, where the files mark none, those that
    evidently mark steps. Ceilings measured on this machine are added where the run's device is one
    of this machine's. Raises `CaptureError`, and `CommandError` where no range is called so.
    """

    def reading(path: Path) -> None:
        size = "" if path.is_dir() else f" ({formatting.byte_count(path.stat().st_size)})"
        progress(f"Reading {path.name}{size}")

    capture = with_steps(open_traces(paths, reading), step_range)
    progress("Finding the operators of each kernel")
    return prepared(capture)


def prepared(capture: Capture) -> Capture:
    """`capture` attributed, with the ceilings that were measured on this machine's devices."""
    return attribute(_with_local_ceilings(capture))


def analyze_rank(capture: Capture, rank: int | None) -> Analysis:
    """The analysis of one rank, the first where none is asked for. Raises `CommandError`."""
    ranks = capture.manifest.ranks
    if rank is not None and rank not in ranks:
        known = ", ".join(map(str, ranks))
        raise CommandError(f"--rank {rank}: the ranks here are {known}", exit_code=2)
    try:
        return analyze(capture, rank=rank)
    except Exception as error:
        plugins = {use for process in capture.processes for use in process.plugins}
        if not plugins:
            raise
        # Tables of the right columns that do not fit each other.
        by = ", ".join(sorted(f"{use.distribution} ({use.adds} {use.of})" for use in plugins))
        what = f"{type(error).__name__}: {reason(error)}"
        raise CommandError(f"what {by} gave cannot be analysed: {what}") from error


def write_chrome_trace(
    capture: Capture, analysis: Analysis, path: Path, *, every_rank: bool
) -> None:
    """Write the analysed rank, or every one of `capture`, as a Chrome trace.

    It is compressed where the name ends in .gz.
    """
    ranks = capture.manifest.ranks if every_rank else (analysis.rank,)
    summaries = all_summaries(capture) if len(ranks) > 1 else None
    analyses = (
        analysis if rank == analysis.rank else analyze(capture, rank=rank, summaries=summaries)
        for rank in ranks
    )
    traced = [(capture.rank(rank), each) for rank, each in zip(ranks, analyses, strict=True)]
    with whole_file(path) as temporary:
        _write(temporary, chrome_trace(traced), path.suffix)


def _write(path: Path, pieces: Iterable[bytes], suffix: str) -> None:
    with path.open("wb") as file:
        if suffix.lower() != ".gz":
            file.writelines(pieces)
            return
        # No name and time in the header: equal captures give equal files.
        with igzip.IGzipFile("", "wb", fileobj=file, mtime=0) as compressed:  # type: ignore[no-untyped-call]  # isal types its reader only
            compressed.writelines(pieces)


def _with_local_ceilings(capture: Capture) -> Capture:
    if calibration_cache.is_empty():
        return capture
    names = local_gpus()
    return capture.with_processes(
        tuple(_with_calibration(process, names) for process in capture.processes)
    )


def _with_calibration(process: ProcessInfo, names: frozenset[str]) -> ProcessInfo:
    devices = process.fingerprint.devices
    if process.calibration is not None or process.device >= len(devices):
        return process
    name = devices[process.device].name
    if name not in names:
        return process
    links = process.link_calibration or _links_of(process, name)
    return msgspec.structs.replace(
        process, calibration=calibration_of(name), link_calibration=links
    )


def _links_of(process: ProcessInfo, name: str) -> LinkCalibration | None:
    """What collectives take between GPUs called `name` here, by the torch of the run."""
    if process.world_size < 2 or process.fingerprint.torch is None:
        return None
    return load_links(name, process.fingerprint.torch)


def local_gpus() -> frozenset[str]:
    """Names of the GPUs of this machine, asked of NVML: that takes milliseconds, torch seconds."""
    return ask(_device_names) or frozenset()


def _device_names(library: Any) -> frozenset[str]:
    return frozenset(
        text(library.nvmlDeviceGetName(library.nvmlDeviceGetHandleByIndex(index)))
        for index in range(device_count(library))
    )


def calibration_of(name: str) -> Calibration | None:
    """What `gpuprof calibrate` measured on the GPU of this name with this torch, if it did."""
    import torch

    if not torch.cuda.is_available():
        return None
    for device in accelerators(torch):
        if device.name == name:
            return calibration_cache.load_cached(
                device, str(torch.__version__), torch.get_num_threads()
            )
    return None
