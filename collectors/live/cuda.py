"""The few calls into torch.cuda that a session makes, typed."""

from typing import Any

import torch

from gpuprof.collectors.manifest import AllocatorStatistics

# torch leaves these without annotations.
_cuda: Any = torch.cuda


def in_use() -> bool:
    """Whether this process has begun to use a GPU; never begins to."""
    return bool(_cuda.is_initialized())


def current_device() -> int:
    """The CUDA device number that this thread works on. CUDA must be in use."""
    return int(_cuda.current_device())


def is_capturing_a_graph() -> bool:
    """Whether the current stream records a CUDA graph instead of running."""
    return in_use() and bool(_cuda.is_current_stream_capturing())


def synchronize() -> None:
    """Wait for all work on the current device."""
    _cuda.synchronize()


def start_other_profiler() -> None:
    """Open the window of a tool that was told to record from cudaProfilerStart on."""
    _cuda.cudart().cudaProfilerStart()


def stop_other_profiler() -> None:
    """Close it, once all work of the window is done."""
    _cuda.synchronize()
    _cuda.cudart().cudaProfilerStop()


def hold(nanoseconds: int) -> None:
    """Let the current stream wait about so long before what is put on it next.

    torch counts in clock cycles, of which no GPU has many more than two a nanosecond.
    """
    _cuda._sleep(2 * nanoseconds)


class StreamMoment:
    """A point in time on the current stream."""

    def __init__(self) -> None:
        self._event: Any = _cuda.Event(enable_timing=True)
        self._event.record()

    def wait(self) -> None:
        """Block until the device has reached this point."""
        self._event.synchronize()

    def is_reached(self) -> bool:
        """Whether the device has reached this point; does not wait for it."""
        return bool(self._event.query())

    def ns_until(self, later: "StreamMoment") -> int:
        """Nanoseconds to `later`, which the device must have reached.

        The driver answers in ms, with a resolution of about half a microsecond.
        """
        milliseconds: float = self._event.elapsed_time(later._event)
        return round(milliseconds * 1e6)


def peak_memory_bytes() -> int:
    """The most device memory that torch's allocator held for tensors."""
    peak: int = _cuda.max_memory_allocated()
    return peak


def reset_peak_memory() -> None:
    """Count the peak from now on, where this process uses a GPU."""
    if in_use():
        _cuda.reset_peak_memory_stats()


def allocator_segments() -> list[dict[str, Any]]:
    """The segments of torch's caching allocator on all devices, with their blocks.

    Empty where torch was told to use another allocator.
    """
    if _cuda.get_allocator_backend() != "native":
        return []
    segments: list[dict[str, Any]] = _cuda.memory_snapshot()
    return segments


def allocator_statistics() -> tuple[AllocatorStatistics, ...]:
    """What torch's allocator counted on each device that it has used; none without a GPU in use."""
    if not in_use():
        return ()
    found = []
    for device in range(_cuda.device_count()):
        counts = _cuda.memory_stats(device)
        if counts.get("reserved_bytes.all.peak"):
            found.append(
                AllocatorStatistics(
                    device=device,
                    peak_allocated_bytes=counts["allocated_bytes.all.peak"],
                    peak_reserved_bytes=counts["reserved_bytes.all.peak"],
                    retries=counts["num_alloc_retries"],
                    failures=counts["num_ooms"],
                )
            )
    return tuple(found)
