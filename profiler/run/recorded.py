"""What a run has recorded, as plain data that another process can be given to store."""

from dataclasses import dataclass

from gpuprof.collectors.live.collected import CollectedBy
from gpuprof.collectors.manifest import ProcessInfo
from gpuprof.profiler.run.observations import Observations
from gpuprof.profiler.run.output import CaptureOutput
from gpuprof.profiler.run.ranks import Ranks


@dataclass(frozen=True)
class Subject:
    """What is recorded and where to."""

    output: CaptureOutput
    title: str
    # "gpuprof run" or "gpuprof.profile"
    source: str
    # Without secrets: gpuprof.collectors.masked_arguments.
    command: tuple[str, ...]
    # Whether the ceilings of a CPU may be measured once the program has ended.
    ceilings: bool = True


@dataclass(frozen=True)
class Recorded:
    """All that a capture is made of."""

    subject: Subject
    ranks: Ranks
    seen: Observations
    process: ProcessInfo
    collected: tuple[CollectedBy, ...] = ()
