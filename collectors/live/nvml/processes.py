"""Who else computes on the GPUs that a program may use."""

from gpuprof.collectors.live.nvml.sampler import find_handle, open_library, visible_uuids


def compute_processes() -> int | None:
    """How many processes hold a context on a visible GPU; None where NVML does not tell.

    Only their number: in a container NVML gives the host's process numbers.
    """
    library, _ = open_library()
    if library is None:
        return None
    try:
        handles = [find_handle(library, uuid) for uuid in visible_uuids(library).values()]
        return sum(len(library.nvmlDeviceGetComputeRunningProcesses(handle)) for handle in handles)
    except (library.NVMLError, ValueError):
        return None
    finally:
        library.nvmlShutdown()
