"""From the start of a session to a stored capture with its analysis."""

import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import TypeVar

import msgspec

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import reason
from gpuprof.collectors.live import cuda
from gpuprof.collectors.live.collection import FAILURES, LiveCollection
from gpuprof.collectors.live.collector import Scope
from gpuprof.collectors.live.fingerprint import collect_fingerprint
from gpuprof.collectors.live.graph_breaks import graph_breaks
from gpuprof.collectors.live.meta_tensors import only_meta_tensors
from gpuprof.collectors.live.model_parameters import live_model
from gpuprof.collectors.live.parameter_groups import live_parameter_groups
from gpuprof.collectors.live.script_errors import is_ours
from gpuprof.collectors.manifest import (
    ENDED_BY_A_SIGNAL,
    Calibration,
    Device,
    Ending,
    Fingerprint,
    ModelParameters,
    ParameterGroup,
    ProcessInfo,
)
from gpuprof.profiler.captures import store
from gpuprof.profiler.machine import calibration_cache
from gpuprof.profiler.run import ranks
from gpuprof.profiler.run.assemble import assemble
from gpuprof.profiler.run.output import CaptureOutput
from gpuprof.profiler.run.session import Session, SessionOptions
from gpuprof.profiler.run.surroundings import enough_address_space
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

_SAMPLE_INTERVAL_NS = 20_000_000

T = TypeVar("T")


@dataclass(frozen=True)
class Subject:
    """What is recorded and where to."""

    output: CaptureOutput
    title: str
    # "gpuprof run" or "gpuprof.profile"
    source: str
    command: tuple[str, ...]


class Recording:
    """A session with its live collectors, stored as soon as the profiled steps are done."""

    def __init__(self, subject: Subject, options: SessionOptions, *, early: bool = True) -> None:
        """`early`: also store when the profiled steps are done, long before `finish`."""
        self.subject = subject
        self.options = options
        on_profiled = self._store_early if early else self._keep_nothing
        self.session = Session(options, on_profiled=on_profiled)
        self._parameter_groups: tuple[ParameterGroup, ...] = ()
        self._model: ModelParameters | None = None
        self._unread: list[str] = []
        self._only_meta_tensors = False
        self.ranks = ranks.Ranks.from_environment()
        self._parts = ranks.Parts(subject.output.requested, self.ranks)
        # Set where whoever waits for other ranks should not wait any longer.
        self.hurry = Event()
        self._collection = LiveCollection(
            Scope(
                None if self.ranks.alone else [self.ranks.local_rank],
                rank=self.ranks.rank,
                interval_ns=_SAMPLE_INTERVAL_NS,
            )
        )

    def start(self) -> None:
        """Begin to watch this process."""
        try:
            self._collection.start()
            self.session.start()
        except BaseException as error:
            if not is_ours(error):
                raise
            self.session.give_up(error)

    def finish(
        self,
        ending: Ending,
        exit_code: int,
        *,
        calibrate: Callable[[Device], Calibration] | None = None,
    ) -> Analysis:
        """Stop watching, store the capture and return its analysis.

        `calibrate` measures the ceilings of a CPU, which has no datasheet, if no earlier run on
        this machine has. Of several ranks, rank 0 waits for the others and stores them all.
        """
        try:
            seen = self.session.finish()
            collected = self._collection.stop()
            process = self._process(ending, exit_code)
            capture = assemble(
                seen,
                process,
                source=self.subject.source,
                title=self.subject.title,
                collected=collected,
            )
            # Ranks that measured at the same time would measure each other.
            capture = _with_ceilings(capture, calibrate if self.ranks.alone else None)
            analysis = analyze(capture)
            if self.ranks.alone:
                self.subject.output.store(capture, analysis)
                return analysis
            store(capture, analysis, self._parts.own)
            return self._join(ending, exit_code) or analysis
        finally:
            self.session.close()

    def _store_early(self, session: Session) -> None:
        """Keep what is known once the profiled steps are done, whatever happens to the script."""
        self._collection.slow_down()
        with enough_address_space():
            capture = assemble(
                session.seen,
                self._process("unknown", None),
                source=self.subject.source,
                title=self.subject.title,
                collected={},
            )
            capture = _with_ceilings(capture, None)
            analysis = analyze(capture)
            if self.ranks.alone:
                self.subject.output.store_early(capture, analysis)
            else:
                store(capture, analysis, self._parts.own)

    def _keep_nothing(self, session: Session) -> None:
        self._collection.slow_down()

    def _join(self, ending: Ending, exit_code: int) -> Analysis | None:
        """Store the capture of all ranks; None where that is another rank's to do."""
        ended = ending in ENDED_BY_A_SIGNAL
        if self.ranks.rank != 0 and not ended:
            return None
        failed = ended or exit_code != 0
        patience_s = ranks.PATIENCE_AFTER_A_FAILURE_S if failed else ranks.PATIENCE_S
        with self._parts.joined(patience_s, hurry=self.hurry) as found:
            if found is None:
                return None
            joined, warnings = found
            first, *others = joined.processes
            first = msgspec.structs.replace(first, warnings=(*first.warnings, *warnings))
            joined = joined.with_processes((first, *others))
            analysis = analyze(joined)
            self.subject.output.store(joined, analysis)
            return analysis

    def _process(self, ending: Ending, exit_code: int | None) -> ProcessInfo:
        # At the end of the script its optimizers and its model may be gone.
        self._parameter_groups = (
            self._fact("the optimizers", live_parameter_groups) or self._parameter_groups
        )
        self._model = self._fact("the model", live_model) or self._model
        on_meta = self._fact("the devices of tensors", only_meta_tensors)
        self._only_meta_tensors = on_meta or self._only_meta_tensors
        fingerprint = self._fact("the environment", collect_fingerprint) or Fingerprint()
        breaks = self._fact("graph breaks", graph_breaks)
        peak_memory_bytes = self._fact("peak memory", _peak_memory_bytes)
        notes = self._collection.notes(gpu_in_use=cuda.in_use())
        return ProcessInfo(
            rank=self.ranks.rank,
            world_size=self.ranks.world_size,
            process=os.getpid(),
            command=self.subject.command,
            exit_code=exit_code,
            ending=ending,
            fingerprint=fingerprint,
            schedule=self.options.schedule,
            parameter_groups=self._parameter_groups,
            model=self._model,
            only_meta_tensors=self._only_meta_tensors,
            peak_memory_bytes=peak_memory_bytes,
            graph_breaks=breaks,
            warnings=(*self._unread, *(note.sentence for note in notes)),
        )

    def _fact(self, name: str, read: Callable[[], T]) -> T | None:
        """What `read` finds in this process, or None with one warning.

        The objects that it looks at are the program's own, and may do anything when looked at.
        """
        try:
            return read()
        except FAILURES as error:
            if not is_ours(error):
                raise
            sentence = f"{name} could not be read: {reason(error)}"
            if sentence not in self._unread:
                self._unread.append(sentence)
            return None


def _with_ceilings(capture: Capture, calibrate: Callable[[Device], Calibration] | None) -> Capture:
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
    process = msgspec.structs.replace(process, calibration=calibration)
    return capture.with_processes((process,))


def _peak_memory_bytes() -> int:
    """Device memory that torch held at most, or, without a GPU in use, the process's own."""
    if cuda.in_use():
        return cuda.peak_memory_bytes()
    # Linux counts ru_maxrss in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
