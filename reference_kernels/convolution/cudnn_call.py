"""One call of cuDNN's forward convolution, and the name of the kernel that it chose.

cuDNN's own interface lets a caller pick an algorithm. Since torch uses cuDNN's graph interface
(v8), torch passes three wishes instead: try all and take the fastest (benchmark), take the
heuristic's first, allow deterministic ones only. The versions here are these wishes in both
layouts; which kernel each led to is in their notes.
"""

from collections.abc import Callable

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
    return Prepared(call, (out,), note=kernels_of(call))


def kernels_of(call: Callable[[], object]) -> str:
    """Names of the kernels that one call launches; "" where another profiler is in the way."""
    if _profiler_enabled():
        return ""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:
        call()
        torch.cuda.synchronize()
    events = record.events() or ()
    names = [e.name for e in events if e.device_type == DeviceType.CUDA]
    return ", ".join(dict.fromkeys(names))
