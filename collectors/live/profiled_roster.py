"""Everything that records while a profile runs. A new one is a module with a class, and a row."""

from collections.abc import Callable
from typing import Final

from gpuprof.collectors.live.compilations import CompilationTimes
from gpuprof.collectors.live.compiled_calls import CompiledCalls
from gpuprof.collectors.live.garbage_collection import Collections
from gpuprof.collectors.live.graph_captures import GraphCaptures
from gpuprof.collectors.live.loader_waits import LoaderWaits
from gpuprof.collectors.live.memory_blocks import MemoryBlocks
from gpuprof.collectors.live.nvtx_ranges import UserRanges
from gpuprof.collectors.live.profile_recorder import ProfileRecorder
from gpuprof.collectors.live.program_positions import ProgramPositions

PROFILED_ROSTER: Final[tuple[Callable[[], ProfileRecorder], ...]] = (
    # They stop in the opposite order: a look at all live objects comes last.
    MemoryBlocks,
    UserRanges,
    Collections,
    CompilationTimes,
    GraphCaptures,
    LoaderWaits,
    CompiledCalls,
    ProgramPositions,
)
