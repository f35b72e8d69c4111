"""Stores a run that has ended, and tells on stderr where it is or why it is nowhere."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Event

from gpuprof.collectors.errors import describe
from gpuprof.collectors.manifest import ENDED_BY_A_SIGNAL, Calibration, Device, Fingerprint
from gpuprof.profiler.captures import load_analysis
from gpuprof.profiler.machine import calibration_cache
from gpuprof.profiler.page_output import PageOutput
from gpuprof.profiler.run.recorded import Recorded
from gpuprof.profiler.run.store_recorded import store_final
from gpuprof.reports.console.streams import write_note
from gpuprof.roofline.analysis import Analysis


def store_and_tell(recorded: Recorded, *, quiet: bool, hurry: Event) -> bool:
    """Store the capture and print its summary, if not `quiet`. What cannot be done is one line.

    Returns False where the capture is lost.
    """
    calibrate = None
    # Whoever asked the program to go does not want to wait.
    if recorded.subject.ceilings and recorded.process.ending not in ENDED_BY_A_SIGNAL:
        calibrate = partial(_calibrate, recorded.process.fingerprint, quiet)
    output = recorded.subject.output
    try:
        stored = store_final(recorded, calibrate=calibrate, hurry=hurry)
    except BaseException as error:
        tell(f"the capture could not be stored: {describe(error)}")
        return False
    if not output.stored:
        # Another rank stores it.
        return True
    if output.moved_because:
        tell(f"{output.moved_because}; the capture is {output.shown}")
    if stored.analysed.analysis is None:
        tell(stored.analysed.problem_sentence(output.shown))
    else:
        _show(stored.analysed.analysis, output.shown, output.page, quiet=quiet)
    if stored.elsewhere:
        tell(_elsewhere_sentence(stored.elsewhere, recorded.ranks.world_size, output.shown))
    return True


def _elsewhere_sentence(ranks: Sequence[int], world_size: int, shown: Path) -> str:
    """One line about ranks that do not work in the capture's folder."""
    return (
        f"{len(ranks)} of {world_size} ranks (the first is rank {ranks[0]}) did not work in the "
        f"folder of {shown}: hosts that share no folder keep a capture each; copied into one "
        "folder, gpuprof analyze FOLDER joins them"
    )


def tell_of(capture: Path, page: PageOutput | None, *, quiet: bool) -> None:
    """The same of a capture to which something was added after its run."""
    _show(load_analysis(capture), capture, page, quiet=quiet)


def _show(analysis: Analysis, capture: Path, page: PageOutput | None, *, quiet: bool) -> None:
    if not quiet:
        _print_summary(analysis, capture)
    if page is not None:
        _write_page(page, analysis, quiet=quiet)


def tell(sentence: str) -> None:
    """Print one line on stderr."""
    write_note(f"gpuprof: {sentence}")


def _print_summary(analysis: Analysis, capture: Path) -> None:
    # A quiet run, such as the gate's, does without what prints.
    from gpuprof.reports.console.terminal import stderr
    from gpuprof.reports.terminal import render_summary

    try:
        render_summary(analysis, stderr(), capture)
    except BaseException as error:
        tell(f"the summary of {capture} could not be printed: {describe(error)}")


def _write_page(page: PageOutput, analysis: Analysis, *, quiet: bool) -> None:
    try:
        sentence = page.write(analysis)
    except BaseException as error:
        tell(f"the page could not be written: {describe(error)}")
    else:
        if not quiet:
            tell(sentence)


def _calibrate(fingerprint: Fingerprint, quiet: bool, device: Device) -> Calibration:
    if not quiet:
        tell("measuring once what this CPU can do (gpuprof calibrate)")
    # As the program had it, for whose figures the ceilings are.
    os.environ.update(fingerprint.environment)
    import torch

    if fingerprint.torch_threads is not None:
        torch.set_num_threads(fingerprint.torch_threads)
    return calibration_cache.calibrate_cached(device)
