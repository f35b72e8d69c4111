"""What gpuprof marks for other tools: steps, regions and versions of a benchmark as NVTX ranges.

Nothing is emitted unless a tool listens: NVTX loads the one that NVTX_INJECTION64_PATH names, and
Nsight Systems and Nsight Compute set it for the programs that they start. torch's own functions are
called, which each of its CUDA builds has. The package nvtx asks a tool whether a domain is enabled,
which tools older than that question never answer (nsys 2022.4): it emits nothing then.

Without torch.cuda.nvtx's Python functions around them, `nvtx_ranges` does not take these ranges for
the program's.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from gpuprof.collectors.live.unix_clock import unix_ns
from gpuprof.collectors.nvtx_names import CLOCK, STEP

_INJECTED: Final = "NVTX_INJECTION64_PATH"
_MARKS: Final = 3


def tool_listens() -> bool:
    """Whether a tool sees the NVTX ranges of this process, as far as torch is there to emit any."""
    torch: Any = sys.modules.get("torch")
    # Other builds have a module in its place that raises.
    return (
        bool(os.environ.get(_INJECTED))
        and getattr(torch, "_C", None) is not None
        and hasattr(torch._C, "_nvtx")
    )


class StepRanges:
    """One range for each step, on all threads: backward passes launch from threads of their own.

    The last one stays open: what it would hold is no complete step.
    """

    def __init__(self) -> None:
        # Whether a tool wants them.
        self.listens = tool_listens()
        self._open: Any = None

    def end(self) -> None:
        """One step ends here, if one has begun."""
        if self._open is not None:
            _nvtx().rangeEnd(self._open)
            self._open = None

    def begin(self, *, tell_time: bool) -> None:
        """The next step begins here. With `tell_time` the tool learns our clock before it."""
        if not self.listens:
            return
        nvtx = _nvtx()
        if tell_time:
            # Each also tells how late it was when the one before had been recorded.
            for _ in range(_MARKS):
                nvtx.markA(f"{CLOCK}{unix_ns()}")
        self._open = nvtx.rangeStartA(STEP)


@contextmanager
def pushed(name: str) -> Iterator[None]:
    """A range of the calling thread around what runs in this context."""
    if not tool_listens():
        yield
        return
    nvtx = _nvtx()
    nvtx.rangePushA(name)
    try:
        yield
    finally:
        nvtx.rangePop()


def _nvtx() -> Any:
    return sys.modules["torch"]._C._nvtx
