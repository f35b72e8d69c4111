"""Who else computes on the GPUs that a program may use."""

from typing import Any

from gpuprof.collectors.live.nvml.library import ask, visible_handles


def compute_processes() -> int | None:
    """How many processes hold a context on a visible GPU; None where NVML does not tell.

    Only their number: in a container NVML gives the host's process numbers.
    """
    return ask(_count)


def _count(library: Any) -> int:
    handles = visible_handles(library).values()
    return sum(len(library.nvmlDeviceGetComputeRunningProcesses(handle)) for handle in handles)
