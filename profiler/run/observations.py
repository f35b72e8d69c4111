"""What a session has seen, as plain data that another process can be given."""

from dataclasses import dataclass, field
from pathlib import Path

from gpuprof.collectors.captured_graph import CapturedGraph
from gpuprof.collectors.live.profile_recorder import Rows
from gpuprof.collectors.manifest import LaterSteps
from gpuprof.collectors.steps.step_time import StepTime
from gpuprof.collectors.watched_steps import WatchedSteps


@dataclass(frozen=True)
class GraphTrace:
    """A trace in which graphs were captured, and what was recorded beside it, by table."""

    path: Path
    beside: Rows = field(default_factory=dict)


@dataclass
class Observations:
    """What a session has seen so far; `gpuprof.profiler.run.assemble` makes a capture of it."""

    started_ns: int
    # Traces in which graphs were captured; the captures of all graphs that the driver told of.
    graph_traces: list[GraphTrace] = field(default_factory=list)
    graphs: list[CapturedGraph] = field(default_factory=list)
    # False where a person wants the whole program as one step.
    looks_for_steps: bool = True
    ended_ns: int | None = None
    found_by: str | None = None
    steps: list[StepTime] = field(default_factory=list)
    # Where the traces lie for as long as the session lasts; None before it has begun.
    folder: Path | None = None
    trace: Path | None = None
    # What else was recorded while `trace` was, by table of the capture.
    beside_trace: Rows = field(default_factory=dict)
    # Start and end of the steps in `trace` where it is the first look; else empty.
    first_look_steps: list[tuple[int, int]] = field(default_factory=list)
    # The tool that held CUPTI while the trace of a program with a GPU was recorded, as is known or,
    # where the trace turns out to have no device work, suspected.
    cupti_held_by: str | None = None
    cupti_suspect: str | None = None
    later_steps: LaterSteps | None = None
    watched_steps: WatchedSteps | None = None
    warnings: list[str] = field(default_factory=list)

    def warn(self, sentence: str) -> None:
        """Add a warning, once."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)
