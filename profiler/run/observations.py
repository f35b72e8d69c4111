"""What a session has seen, as plain data that another process can be given."""

from dataclasses import dataclass, field
from pathlib import Path

from gpuprof.collectors.live.recorded_range import RecordedRange
from gpuprof.collectors.manifest import LaterSteps
from gpuprof.collectors.steps.step_time import StepTime


@dataclass
class Observations:
    """What a session has seen so far; `gpuprof.profiler.run.assemble` makes a capture of it."""

    started_ns: int
    ended_ns: int | None = None
    found_by: str | None = None
    steps: list[StepTime] = field(default_factory=list)
    ranges: list[RecordedRange] = field(default_factory=list)
    trace: Path | None = None
    # True where `trace` is the first look, not the profiled steps.
    trace_is_first_look: bool = False
    # Where the first step begins, if its start could be seen, and where the first look ends.
    first_step_start_ns: int | None = None
    first_look_end_ns: int | None = None
    later_steps: LaterSteps | None = None
    warnings: list[str] = field(default_factory=list)
