"""From the start of a session to a stored capture with its analysis."""

import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpuprof.collectors import cuda
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.fingerprint import collect_fingerprint
from gpuprof.collectors.manifest import Ending, ProcessInfo
from gpuprof.collectors.nvml import NvmlSampler
from gpuprof.profiler import calibration_cache
from gpuprof.profiler.assemble import assemble, store
from gpuprof.profiler.session import Options, Session
from gpuprof.roofline.analysis import Analysis

_SAMPLE_INTERVAL_NS = 20_000_000


@dataclass(frozen=True)
class Subject:
    """What is recorded and where to."""

    output: Path
    title: str
    # "gpuprof run" or "gpuprof.profile"
    source: str
    command: tuple[str, ...]


class Recording:
    """A session with its device samples, stored as soon as the profiled steps are done."""

    def __init__(self, subject: Subject, options: Options) -> None:
        self.subject = subject
        self.options = options
        self.session = Session(options, on_profiled=self._store_early)
        self._sampler = NvmlSampler(interval_ns=_SAMPLE_INTERVAL_NS)

    def start(self) -> None:
        """Begin to watch this process."""
        self._sampler.start()
        self.session.start()

    def finish(self, ending: Ending, exit_code: int, *, calibrate: bool) -> Analysis:
        """Stop watching, store the capture and return its analysis.

        `calibrate` measures the ceilings of a device that has none from a datasheet, if no
        earlier run on this machine has.
        """
        seen = self.session.finish()
        try:
            samples = self._sampler.stop()
            process = self._process(ending, exit_code)
            capture = assemble(
                seen,
                process,
                source=self.subject.source,
                title=self.subject.title,
                samples=samples,
            )
            return store(_with_ceilings(capture, calibrate=calibrate), self.subject.output)
        finally:
            self.session.close()

    def _store_early(self, session: Session) -> None:
        """Keep what is known once the profiled steps are done, whatever happens to the script."""
        self._sampler.slow_down()
        capture = assemble(
            session.seen,
            self._process("unknown", None),
            source=self.subject.source,
            title=self.subject.title,
            samples=None,
        )
        store(_with_ceilings(capture, calibrate=False), self.subject.output)

    def _process(self, ending: Ending, exit_code: int | None) -> ProcessInfo:
        return ProcessInfo(
            rank=int(os.environ.get("RANK", "0")),
            world_size=int(os.environ.get("WORLD_SIZE", "1")),
            process=os.getpid(),
            command=self.subject.command,
            exit_code=exit_code,
            ending=ending,
            fingerprint=collect_fingerprint(),
            schedule=self.options.schedule,
            peak_memory_bytes=_peak_memory_bytes(),
            warnings=tuple(self._sampler.notes),
        )


def _with_ceilings(capture: Capture, *, calibrate: bool) -> Capture:
    """`capture` with the ceilings measured on this machine, where there are any."""
    (process,) = capture.processes
    fingerprint = process.fingerprint
    if process.device >= len(fingerprint.devices):
        return capture
    device = fingerprint.devices[process.device]
    calibration = calibration_cache.load_cached(
        device, fingerprint.torch or "", fingerprint.torch_threads
    )
    if calibration is None and calibrate and device.kind == "cpu":
        print("gpuprof: measuring what this CPU can do, once (gpuprof calibrate)", file=sys.stderr)
        calibration = calibration_cache.calibrate_cached(device)
    process = msgspec.structs.replace(process, calibration=calibration)
    return capture.with_processes((process,))


def _peak_memory_bytes() -> int:
    """Device memory that torch held at most, or, without a GPU in use, the process's own."""
    if cuda.in_use():
        return cuda.peak_memory_bytes()
    # Linux counts ru_maxrss in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
