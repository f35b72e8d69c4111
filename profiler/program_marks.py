"""What a program says of itself: where its steps end, and what its parts are called.

A training script imports this whether or not anything records: a module of the standard library
or two, and nothing of what records or stores.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.live.nvtx_marks import pushed
from gpuprof.collectors.live.recorded_range import RecordedRange
from gpuprof.collectors.live.unix_clock import unix_ns
from gpuprof.profiler.run import current_session


def step(tokens: int | None = None) -> None:
    """Say that one step ends here; call it at the end of each pass of the loop.

    `tokens` is how many tokens the step processed on this rank, for tokens a second. Costs
    nothing where nothing records.
    """
    if current_session.begin is not None:
        current_session.begin()
    if current_session.current is not None:
        current_session.current.step(tokens)


@contextmanager
def region(name: str, flops: int | None = None, bytes: int | None = None) -> Iterator[None]:
    """Name a part of the program; `flops` and `bytes` say what one pass through it costs.

    The region shows as a range with its own roofline point. Where gpuprof does not record, it is
    a `torch.profiler.record_function` range, which other profilers see, and in both cases an NVTX
    range where Nsight Systems or Nsight Compute listens. Raises `CommandError` for negative counts.
    """
    for what, count in (("flops", flops), ("bytes", bytes)):
        if count is not None and count < 0:
            raise CommandError(f"region {name!r}: {what} is {count}; give 0 or more, or None")
    if current_session.current is None:
        with _visible_to_other_profilers(name), pushed(name):
            yield
        return
    from gpuprof.collectors.live import nvtx_ranges

    start_ns = unix_ns()
    try:
        with pushed(name):
            yield
    finally:
        nvtx_ranges.add(
            RecordedRange(
                name=name,
                domain="region",
                thread=threading.get_native_id(),
                start_ns=start_ns,
                end_ns=unix_ns(),
                flops=flops,
                bytes=bytes,
            )
        )


def _visible_to_other_profilers(name: str) -> AbstractContextManager[object]:
    # Before torch is imported none of them can run.
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.profiler.record_function(name)
