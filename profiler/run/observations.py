"""What a session has seen, as plain data that another process can be given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuprof.collectors.manifest import LaterSteps
from gpuprof.collectors.steps.step_time import StepTime
from gpuprof.collectors.watched_steps import WatchedSteps


@dataclass
class Observations:
    """What a session has seen so far; `gpuprof.profiler.run.assemble` makes a capture of it."""

    started_ns: int
    # False where a person wants the whole program as one step.
    looks_for_steps: bool = True
    ended_ns: int | None = None
    found_by: str | None = None
    steps: list[StepTime] = field(default_factory=list)
    trace: Path | None = None
    # What else was recorded while `trace` was, by table of the capture.
    beside_trace: Mapping[str, Sequence[Mapping[str, object]]] = field(default_factory=dict)
    # Start and end of the steps in `trace` where it is the first look; else empty.
    first_look_steps: list[tuple[int, int]] = field(default_factory=list)
    later_steps: LaterSteps | None = None
    watched_steps: WatchedSteps | None = None
    warnings: list[str] = field(default_factory=list)
