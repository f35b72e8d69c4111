"""Names of the NVTX ranges and marks that gpuprof emits, by which it knows them again."""

from typing import Final

# One step, from one boundary to the next.
STEP: Final = "gpuprof step"
# Before the nanoseconds since the Unix epoch at which the mark was made.
CLOCK: Final = "gpuprof clock "
