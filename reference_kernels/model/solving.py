"""A problem as a function to call, compiled or captured by the versions."""

from collections.abc import Callable

import torch

from gpuprof.reference_kernels.model.llama import LlamaBlock, decoder
from gpuprof.reference_kernels.model.problem import ModelProblem

Decoder = Callable[..., torch.Tensor]
Solve = Callable[[], tuple[torch.Tensor, ...]]


def make_solve(problem: ModelProblem, decode: Decoder = decoder) -> Solve:
    """A function that solves `problem` once and returns its outputs; `decode` may be compiled."""
    if problem.output_gradient is None:
        return _inference(problem, decode)
    return _training(problem, problem.output_gradient, decode)


def _inference(problem: ModelProblem, decode: Decoder) -> Solve:
    # Decoding writes the last token's keys and values, the same ones each time.
    cache = problem.cache or problem.empty_cache()

    def solve() -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            states = decode(
                problem.input, problem.blocks, problem.dimensions, problem.tables, cache
            )
        return (states,) if problem.mode == "decode" else (states, cache.keys, cache.values)

    return solve


def _training(problem: ModelProblem, gradient: torch.Tensor, decode: Decoder) -> Solve:
    count = len(problem.blocks[0].weights)
    with torch.inference_mode(False):
        leaves = [t.detach().requires_grad_() for t in (problem.input, *problem.weights)]
    of_blocks = leaves[1:]
    blocks = tuple(
        LlamaBlock(*of_blocks[first : first + count]) for first in range(0, len(of_blocks), count)
    )

    def solve() -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            states = decode(leaves[0], blocks, problem.dimensions, problem.tables, None)
            return torch.autograd.grad(states, leaves, gradient)

    return solve
