"""Elementwise operations operator by operator: what fusing saves.

FLOPs: those of the definition; for gelu an H100 executes 4.1 times as many, the error function
being a polynomial, for swiglu 5.2, the exponential and the division being precise, for rotary 1.33,
torch's sum and difference having a factor. Expected bytes, which were counted within 2 %: each
operator reads its operands and writes its result in the tensors' dtype. gelu is five operators, 6
reads and 5 writes of the tensor; swiglu two (silu, product), 3 and 2; rotary four products, a
difference and a sum on halves and the float32 tables, whose results are float32 too.
"""

import math

import torch

from gpuprof.reference_kernels.elementwise.problem import ElementwiseProblem
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: ElementwiseProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    output = problem.empty_output()
    if problem.operation == "gelu":
        return _gelu(problem.input, output)
    if problem.operation == "swiglu":
        return _swiglu(problem.gate, problem.up, output)
    return _rotary(problem, output)


def _gelu(x: torch.Tensor, output: torch.Tensor) -> Prepared:
    scratch = torch.empty_like(x)

    def call() -> None:
        torch.mul(x, 1 / math.sqrt(2), out=scratch)
        torch.erf(scratch, out=scratch)
        torch.add(scratch, 1.0, out=scratch)
        torch.mul(scratch, x, out=scratch)
        torch.mul(scratch, 0.5, out=output)

    return Prepared(
        call,
        (output,),
        expected_bytes_read=6 * x.nbytes,
        expected_bytes_written=5 * x.nbytes,
    )


def _swiglu(gate: torch.Tensor, up: torch.Tensor, output: torch.Tensor) -> Prepared:
    scratch = torch.empty_like(gate)

    def call() -> None:
        torch.ops.aten.silu.out(gate, out=scratch)
        torch.mul(scratch, up, out=output)

    return Prepared(
        call,
        (output,),
        expected_bytes_read=3 * gate.nbytes,
        expected_bytes_written=2 * gate.nbytes,
    )


def _rotary(problem: ElementwiseProblem, output: torch.Tensor) -> Prepared:
    first, second = problem.input.chunk(2, -1)
    cosine, sine = (table[:, None] for table in (problem.cosine, problem.sine))
    halves = output.chunk(2, -1)
    products = [torch.empty(first.shape, device=first.device) for _ in range(2)]

    def call() -> None:
        torch.mul(first, cosine, out=products[0])
        torch.mul(second, sine, out=products[1])
        torch.sub(products[0], products[1], out=halves[0])
        torch.mul(second, cosine, out=products[0])
        torch.mul(first, sine, out=products[1])
        torch.add(products[0], products[1], out=halves[1])

    whole, product = problem.input.nbytes, products[0].nbytes
    tables = 2 * (problem.cosine.nbytes + problem.sine.nbytes)
    return Prepared(
        call,
        (output,),
        expected_bytes_read=2 * whole + tables + 4 * product,
        expected_bytes_written=4 * product + whole,
    )
