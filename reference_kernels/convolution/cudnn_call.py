"""One call of cuDNN's forward convolution, and the name of the kernel that it chose.

cuDNN's own interface lets a caller pick an algorithm. Since torch uses cuDNN's graph interface
(v8), torch passes three wishes instead: try all and take the fastest (benchmark), take the
heuristic's first, allow deterministic ones only. The versions here are these wishes in both
layouts; which kernel each led to is in their notes.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files

import msgspec
import torch
from torch._C._autograd import DeviceType, _profiler_enabled
from torch.profiler import ProfilerActivity, profile

from gpuprof.reference_kernels.convolution.problem import ConvolutionProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError


def prepare_cudnn(
    problem: ConvolutionProblem,
    *,
    benchmark: bool,
    deterministic: bool = False,
    memory_format: torch.memory_format = torch.channels_last,
) -> Prepared:
    """The convolution alone, in `memory_format`, by the algorithm that cuDNN takes."""
    if problem.batch_norm is not None:
        raise UnsupportedError("cuDNN's plain convolution has no +bn-relu: see cudnn-fused")
    x = problem.x.contiguous(memory_format=memory_format)
    weight = problem.weight.contiguous(memory_format=memory_format)
    out = problem.new_output(memory_format)

    def call() -> None:
        torch.ops.aten.cudnn_convolution.out(
            x,
            weight,
            [problem.padding] * 2,
            [problem.stride] * 2,
            [problem.dilation] * 2,
            problem.groups,
            benchmark,
            deterministic,
            problem.dtype == "tf32",
            out=out,
        )

    # The first call is where cuDNN tries its algorithms.
    call()
    return Prepared(call, (out,), note=algorithm_of(call))


def algorithm_of(call: Callable[[], object]) -> str:
    """Which algorithm one call takes, from its kernels; "" where another profiler is in the way."""
    if _profiler_enabled():
        return ""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:
        call()
        torch.cuda.synchronize()
    events = record.events() or ()
    on_gpu = [event for event in events if event.device_type == DeviceType.CUDA]
    return describe([(event.name, event.time_range.elapsed_us()) for event in on_gpu])


def describe(kernels: Sequence[tuple[str, float]]) -> str:
    """ "implicit GEMM by sm90_xmma_fprop_...", from kernels' names and times; "" of none.

    The kernel named is the longest one. Transposes between NCHW and NHWC are mentioned.
    """
    if not kernels:
        return ""
    names = [name for name, _ in kernels]
    longest, _ = max(kernels, key=lambda kernel: kernel[1])
    matches = (
        algorithm.name
        for algorithm in _algorithms()
        if any(re.search(algorithm.pattern, name) for name in names)
    )
    transposed = any(re.search("nchwToNhwc|nhwcToNchw", name) for name in names)
    text = f"{next(matches, 'unknown algorithm')} by {longest}"
    return f"{text}, with transposes" if transposed else text


class _Algorithm(msgspec.Struct, frozen=True):
    pattern: str
    name: str
    source: str


class _Table(msgspec.Struct, frozen=True):
    algorithms: tuple[_Algorithm, ...]


@cache
def _algorithms() -> tuple[_Algorithm, ...]:
    table = files("gpuprof.reference_kernels.convolution") / "cudnn_algorithms.toml"
    return msgspec.toml.decode(table.read_bytes(), type=_Table).algorithms
