"""Everything that records while a profile runs. A new one is a module with a class, and a row."""

from gpuprof.collectors.live.compilations import CompilationTimes
from gpuprof.collectors.live.compiled_calls import CompiledCalls
from gpuprof.collectors.live.garbage_collection import Collections
from gpuprof.collectors.live.graph_captures import GraphCaptures
from gpuprof.collectors.live.loader_waits import LoaderWaits
from gpuprof.collectors.live.memory_blocks import MemoryBlocks
from gpuprof.collectors.live.nvtx_ranges import UserRanges
from gpuprof.collectors.live.profile_recorder import ProfileRecorder
from gpuprof.collectors.live.program_positions import ProgramPositions


def profile_recorders(*, whole_stacks: bool = False) -> list[ProfileRecorder]:
    """A recorder of each kind. `whole_stacks`: of the program's Python, not only its lines."""
    return [
        # They stop in the opposite order: a look at all live objects comes last.
        MemoryBlocks(),
        UserRanges(),
        Collections(),
        CompilationTimes(),
        GraphCaptures(),
        LoaderWaits(),
        CompiledCalls(),
        ProgramPositions(whole_stacks=whole_stacks),
    ]
