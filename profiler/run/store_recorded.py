"""From what a run has recorded to a stored capture with its analysis."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Final

import msgspec

from gpuprof.collectors.capture import Capture
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


def analysed_early(recorded: Recorded) -> tuple[Capture, Analysis]:
    """What is known once the profiled steps are done; nothing is stored yet."""
    return _analysed(recorded, calibrate=None, read_again=True)


def store_early(recorded: Recorded, analysed: tuple[Capture, Analysis]) -> None:
    """Keep that, whatever happens to the program."""
    capture, analysis = analysed
    if recorded.ranks.alone:
        recorded.subject.output.store_early(capture, analysis)
    else:
        _store_part(recorded, capture, analysis)


@dataclass(frozen=True)
class Stored:
    """What was stored: its analysis, and the ranks of the job that work in other folders."""

    analysis: Analysis
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
    capture, analysis = _analysed(recorded, calibrate if recorded.ranks.alone else None)
    if recorded.ranks.alone:
        recorded.subject.output.store(capture, analysis)
        return Stored(analysis)
    if not _store_part(recorded, capture, analysis):
        return Stored(analysis)
    return _join(recorded, hurry) or Stored(analysis)


def _store_part(recorded: Recorded, capture: Capture, analysis: Analysis) -> bool:
    """Store one rank where the rank that joins them looks; False where it had to go elsewhere."""
    parts = _parts(recorded)
    try:
        parts.begin()
        store(capture, analysis, parts.own)
    except OSError as error:
        recorded.subject.output.store_elsewhere(capture, analysis, error)
        return False
    return True


def _analysed(
    recorded: Recorded, calibrate: Calibrate | None, *, read_again: bool = False
) -> tuple[Capture, Analysis]:
    with timed(_log, "the profile was read"):
        capture = assemble(recorded, read_again=read_again)
    capture = _with_ceilings(capture, calibrate)
    with timed(_log, "the capture was analysed"):
        return capture, analyze(capture)


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
        analysis = analyze(joined.capture)
        recorded.subject.output.store(joined.capture, analysis)
        return Stored(analysis, joined.elsewhere)


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
