"""Choosing the fastest of a kernel's configurations by running them, while a version is prepared.

triton.autotune would do the same, but only on a GPU; this leaves the one kernel for the GPU and
for Triton's interpreter.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import triton
import triton.testing

from gpuprof.reference_kernels.suite import UnsupportedError

ConfigurationT = TypeVar("ConfigurationT")

_WARMUP_MS = 5
_REPEAT_MS = 30


def fastest(
    configurations: Sequence[ConfigurationT], run: Callable[[ConfigurationT], object]
) -> ConfigurationT:
    """The configuration with which `run` takes the least time, the L2 cleared before each call.

    Leaves out those that need more registers or shared memory than the GPU has. Raises
    `UnsupportedError` where that leaves none.
    """
    times: list[tuple[float, ConfigurationT]] = []
    for configuration in configurations:
        try:
            milliseconds = triton.testing.do_bench(
                lambda chosen=configuration: run(chosen),
                warmup=_WARMUP_MS,
                rep=_REPEAT_MS,
                return_mode="median",
            )
        except triton.runtime.errors.OutOfResources:
            continue
        times.append((milliseconds, configuration))
    if not times:
        raise UnsupportedError("no configuration of this kernel fits this GPU")
    return min(times, key=lambda pair: pair[0])[1]
