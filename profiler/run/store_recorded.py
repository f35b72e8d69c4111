"""From what a run has recorded to a stored capture with its analysis."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final

import msgspec
from polars.exceptions import PanicException

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import describe
from gpuprof.collectors.manifest import ENDED_BY_A_SIGNAL, Calibration, Device
from gpuprof.profiler.captures import store
from gpuprof.profiler.log import timed
from gpuprof.profiler.machine import calibration_cache
from gpuprof.profiler.machine.link_calibration_cache import load_links
from gpuprof.profiler.run.assemble import assemble
from gpuprof.profiler.run.parts import PATIENCE_AFTER_A_FAILURE_S, PATIENCE_S, Parts
from gpuprof.profiler.run.recorded import Recorded
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

Calibrate = Callable[[Device], Calibration]
_log = logging.getLogger(__name__)
_NEVER: Final = Event()


@dataclass(frozen=True)
class Analysed:
    """A capture and what it means."""

    capture: Capture
    # None where it could not be analysed, which is a fault of ours: the capture is kept without.
    analysis: Analysis | None
    # Why it could not be; "" where it could.
    problem: str = ""

    def problem_sentence(self, stored: Path) -> str:
        """What to say of that where the capture is `stored`."""
        return (
            f"{stored} is stored, and could not be analysed, which is a fault of gpuprof: "
            f"{self.problem}; gpuprof summary {stored} tries again"
        )


def analysed_early(recorded: Recorded) -> Analysed:
    """What is known once the profiled steps are done; nothing is stored yet."""
    return _analysed(recorded, calibrate=None, read_again=True)


def store_early(recorded: Recorded, analysed: Analysed) -> None:
    """Keep that, whatever happens to the program."""
    if recorded.ranks.alone:
        recorded.subject.output.store_early(analysed.capture, analysed.analysis)
    else:
        _store_part(recorded, analysed)


@dataclass(frozen=True)
class Stored:
    """What was stored, and the ranks of the job that work in other folders."""

    analysed: Analysed
    elsewhere: tuple[int, ...] = ()


def store_final(
    recorded: Recorded, *, calibrate: Calibrate | None = None, hurry: Event = _NEVER
) -> Stored:
    """Store the capture in place of an early one.

    `calibrate` measures the ceilings of a CPU, which has no datasheet, if no earlier run on this
    machine has. Of several ranks, the lowest in the folder waits for the others, less long once
    `hurry` is set, and stores them all.
    """
    # Ranks that measured at the same time would measure each other.
    analysed = _analysed(recorded, calibrate if recorded.ranks.alone else None)
    if recorded.ranks.alone:
        recorded.subject.output.store(analysed.capture, analysed.analysis)
        return Stored(analysed)
    if not _store_part(recorded, analysed):
        return Stored(analysed)
    return _join(recorded, hurry) or Stored(analysed)


def _store_part(recorded: Recorded, analysed: Analysed) -> bool:
    """Store one rank where the rank that joins them looks; False where it had to go elsewhere."""
    parts = _parts(recorded)
    try:
        parts.begin()
        store(analysed.capture, analysed.analysis, parts.own)
    except OSError as error:
        recorded.subject.output.store_elsewhere(analysed.capture, analysed.analysis, error)
        return False
    return True


def _analysed(
    recorded: Recorded, calibrate: Calibrate | None, *, read_again: bool = False
) -> Analysed:
    with timed(_log, "the profile was read"):
        capture = assemble(recorded, read_again=read_again)
    capture = _with_ceilings(capture, calibrate)
    return _analysis_of(capture)


def _analysis_of(capture: Capture) -> Analysed:
    try:
        with timed(_log, "the capture was analysed"):
            return Analysed(capture, analyze(capture))
    except (Exception, PanicException) as error:
        return Analysed(capture, None, describe(error))


def _parts(recorded: Recorded) -> Parts:
    return Parts(recorded.subject.output.requested, recorded.ranks)


def _join(recorded: Recorded, hurry: Event) -> Stored | None:
    """Store the capture of all ranks; None where that is another rank's to do."""
    ended = recorded.process.ending in ENDED_BY_A_SIGNAL
    failed = ended or recorded.process.exit_code != 0
    patience_s = PATIENCE_AFTER_A_FAILURE_S if failed else PATIENCE_S
    with _parts(recorded).joined(patience_s, hurry=hurry, first_come=ended) as joined:
        if joined is None:
            return None
        analysed = _analysis_of(joined.capture)
        recorded.subject.output.store(analysed.capture, analysed.analysis)
        return Stored(analysed, joined.elsewhere)


def _with_ceilings(capture: Capture, calibrate: Calibrate | None) -> Capture:
    """`capture` with the ceilings measured on this machine, where there are any."""
    (process,) = capture.processes
    fingerprint = process.fingerprint
    if process.device >= len(fingerprint.devices):
        return capture
    device = fingerprint.devices[process.device]
    calibration = calibration_cache.load_cached(
        device, fingerprint.torch or "", fingerprint.torch_threads
    )
    worth_it = device.kind == "cpu" and not capture.kernels.is_empty()
    if calibration is None and calibrate is not None and worth_it:
        calibration = calibrate(device)
    links = None
    if process.world_size > 1:
        links = load_links(device.name, fingerprint.torch or "")
    process = msgspec.structs.replace(process, calibration=calibration, link_calibration=links)
    return capture.with_processes((process,))
