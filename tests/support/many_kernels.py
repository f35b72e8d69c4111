"""A made-up step with as many distinct kernels as wanted, and a job of as many ranks."""

from capture_builder import CaptureBuilder
from made_up_ranks import MadeUpRank, Work, summaries

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.rank_figures import RanksAnalysis
from gpuprof.roofline.ranks.instances import instances
from gpuprof.roofline.ranks.join import join

_STEPS = 3
# As the compiler writes the kernels of a library of templates.
_NAME = (
    "void at::native::(anonymous namespace)::vectorized_elementwise_kernel<{number}, "
    "at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
    "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int, "
    "at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
    "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul>)"
)


def many_kernels(number: int) -> Capture:
    """Three profiled steps, each with `number` kernels of other names and products of other shapes.

    The first ones take longest.
    """
    build = CaptureBuilder()
    at = 0
    for _ in range(_STEPS):
        begun = at
        for index in range(number):
            length = 2_000 + 2_000_000 // (1 + index)
            build.mm(at, at + 900, m=8 * (1 + index))
            build.kernel(at + 500, at + 1_000, at + 1_000 + length, _NAME.format(number=index))
            at += length + 2_000
        build.step("profiled", begun, at)
    return build.build()


def many_ranks(number: int) -> RanksAnalysis:
    """Ranks that do the same, one of which needs longer."""
    work = [[Work(10_000_000)]] * _STEPS
    late = [[Work(13_000_000)]] * _STEPS
    made = summaries(*(MadeUpRank(late if rank == number // 3 else work) for rank in range(number)))
    found = join(made, instances(made))
    assert found is not None
    return found
