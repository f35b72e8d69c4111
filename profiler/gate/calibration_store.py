"""What A/A gates showed of the noise, kept in the user's cache folder: one file a session.

A session is added as a new file and never changed, so jobs that run at once cannot spoil each
other's. Sessions are pooled when they are read: those of the same target of the same project, in an
environment that does not strictly differ.
"""

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from gpuprof._version import __version__
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.stored_json import decode_stored, stored_content
from gpuprof.collectors.files.writing import write_file
from gpuprof.collectors.manifest import Fingerprint
from gpuprof.profiler.configuration.targets import Target
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.planning import TargetNoise
from gpuprof.roofline.gate.result import GateResult
from gpuprof.roofline.gate.series import MetricKey, NoiseCalibration, calibrate
from gpuprof.roofline.gate.suite import MeasuredProcess
from gpuprof.roofline.machine.environment import differences

SESSION_SCHEMA_VERSION = 1
# Fewer shifts of rebuilding say too little of its spread, of which three times hide a change.
_FEWEST_REBUILDS = 3


# Of a ratio of two measurements; beyond this it is damage.
_Logarithm: TypeAlias = Annotated[float, msgspec.Meta(ge=-100, le=100)]


class NoiseSession(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs of processes of one target that ran the same code."""

    schema_version: int = SESSION_SCHEMA_VERSION
    tool_version: str
    created_ns: int
    # Where the project stands: targets of other projects may have the same name.
    project: str
    target: Target
    fingerprint: Fingerprint
    # Whether the two sides were built each for itself.
    rebuilt: bool
    # Of one process, in the median.
    seconds: float
    # By benchmark and metric, for each pair: how much worse B was, as a logarithm.
    differences: dict[str, dict[str, tuple[_Logarithm, ...]]]


def sessions_of(
    result: GateResult, targets: Sequence[Target], project: Path, *, rebuilt: bool
) -> tuple[NoiseSession, ...]:
    """The sessions that a gate on the same code was, one for each target with pairs."""
    found = []
    for target in targets:
        own = [process for process in result.processes if process.target == target.name]
        names = {name for process in own for name in process.measurements}
        values: dict[str, dict[str, tuple[float, ...]]] = {}
        for judgement in result.judgements:
            if judgement.benchmark in names and len(judgement.pair_changes) > 1:
                kept = values.setdefault(judgement.benchmark, {})
                kept[judgement.metric.name] = _logarithms(judgement)
        if values:
            found.append(
                NoiseSession(
                    tool_version=__version__,
                    created_ns=result.created_ns,
                    project=str(project.resolve()),
                    target=target.kept,
                    fingerprint=result.head.fingerprint,
                    rebuilt=rebuilt,
                    seconds=process_seconds(own),
                    differences=values,
                )
            )
    return tuple(found)


def process_seconds(processes: Sequence[MeasuredProcess]) -> float:
    """What a process took in the median."""
    seconds = sorted(process.seconds for process in processes)
    return seconds[len(seconds) // 2]


def pooled(sessions: Sequence[NoiseSession]) -> dict[MetricKey, NoiseCalibration]:
    """The calibration of each metric of each benchmark over `sessions` of one target."""
    series: dict[MetricKey, list[tuple[float, ...]]] = {}
    rebuilds: dict[MetricKey, list[float]] = {}
    for session in sessions:
        for benchmark, metrics in session.differences.items():
            for metric, values in metrics.items():
                series.setdefault((benchmark, metric), []).append(values)
                if session.rebuilt:
                    shift = math.fsum(values) / len(values)
                    rebuilds.setdefault((benchmark, metric), []).append(shift)
    enough = {key: shifts for key, shifts in rebuilds.items() if len(shifts) >= _FEWEST_REBUILDS}
    return {key: calibrate(values, enough.get(key, ())) for key, values in series.items()}


def noise_of(sessions: Sequence[NoiseSession]) -> TargetNoise:
    """What `sessions` of one target, at least one and the oldest first, show of its noise."""
    last = sessions[-1]
    return TargetNoise(
        target=last.target.name,
        calibrations=pooled(sessions),
        process_seconds=last.seconds,
        sessions=len(sessions),
        devices=tuple(device.name for device in last.fingerprint.devices),
        latest_ns=last.created_ns,
    )


@dataclass(frozen=True)
class CalibrationStore:
    """The sessions of one project."""

    project: Path

    @property
    def folder(self) -> Path:
        """Below $XDG_CACHE_HOME or ~/.cache. Raises `RuntimeError` where there is no home."""
        cache = os.environ.get("XDG_CACHE_HOME")
        return (Path(cache) if cache else Path.home() / ".cache") / "gpuprof" / "gate"

    def add(self, session: NoiseSession) -> Path | None:
        """Keep `session`. Returns its file, or None where the cache cannot be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # The time now, not the session's: two targets of one gate have the same.
            file = self.folder / f"session-{time.time_ns()}-{os.getpid()}.json"
            write_file(file, msgspec.json.format(msgspec.json.encode(session), indent=1))
        except (OSError, RuntimeError):
            return None
        self.__dict__.pop("_all", None)
        return file

    @cached_property
    def _all(self) -> tuple[NoiseSession, ...]:
        """Of this project, the oldest first. What cannot be read is left out, as of any cache."""
        found = []
        try:
            files = sorted(self.folder.glob("session-*.json"))
        except (OSError, RuntimeError):
            return ()
        for file in files:
            try:
                session = decode_stored(stored_content(file), NoiseSession)
            # ValueError: msgspec's errors, and invalid UTF-8.
            except (CaptureError, ValueError):
                continue
            version = session.schema_version == SESSION_SCHEMA_VERSION
            if version and session.project == str(self.project.resolve()):
                found.append(session)
        return tuple(sorted(found, key=lambda session: session.created_ns))

    def sessions(self, target: Target, fingerprint: Fingerprint) -> tuple[NoiseSession, ...]:
        """Those of `target` in an environment as strict as `fingerprint`'s, the oldest first."""
        return tuple(
            session
            for session in self._all
            if session.target.kept == target.kept
            and not differences(session.fingerprint, fingerprint).strict
        )

    def latest(self, target: Target) -> NoiseSession | None:
        """The last session of `target`, whatever its environment."""
        return next((s for s in reversed(self._all) if s.target.kept == target.kept), None)

    def calibrations(
        self, target: Target, fingerprint: Fingerprint
    ) -> Mapping[MetricKey, NoiseCalibration]:
        """What the gate may know beforehand of the noise of `target`'s benchmarks."""
        return pooled(self.sessions(target, fingerprint))


def _logarithms(judgement: Judgement) -> tuple[float, ...]:
    sign = 1 if judgement.metric.better == "lower" else -1
    return tuple(sign * math.log1p(change) for change in judgement.pair_changes)
