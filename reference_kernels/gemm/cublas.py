"""The vendor's library through torch: what every other version is measured against.

FLOPs: 2 M N K (torch.mm; torch._scaled_mm with unit scales for fp8; torch._int_mm for int8).
With "+relu" and "+gelu" the steps stay apart: addmm, then the activation as a kernel of its own,
which reads and writes C once more; compare cublaslt-epilogue.

Bytes: compulsory. Expected: compulsory, as long as a wave's operands fit the L2.
Measured: FLOPs exact, but 8 times in the product of one row, as an instruction multiplies at least
eight columns. Read 2.24 times compulsory in bf16, 1.66 in fp8, 2.70 in int8, 2.55 in fp32: a band
of tiles walks along all of B, more than the half of the L2 next to a multiprocessor holds, and the
next band reads it anew; with one row exact. Written 0.61 to 0.85 times.

Source: NVIDIA cuBLAS documentation; BLAS level 3, Dongarra et al., 1990.
"""

import torch

from gpuprof.reference_kernels.calibration.gemm import float32_products
from gpuprof.reference_kernels.gemm.problem import GemmProblem
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError


def prepare(problem: GemmProblem) -> Prepared:
    """Through the operator that torch has for the dtype."""
    if problem.groups is not None:
        raise UnsupportedError("cublas has no groups: see torch-grouped")
    if problem.bias is not None:
        return _prepare_separate_epilogue(problem, problem.bias)
    problem.require_fp8_units()
    a, b, out = problem.a, problem.b, problem.new_output()
    if problem.dtype == "fp8":
        return _prepare_fp8(a, b, out)
    if problem.dtype == "int8":
        return _prepare_int8(a, b, out)

    def call() -> None:
        with float32_products(tf32=problem.dtype == "tf32"):
            torch.mm(a, b, out=out)

    return Prepared(call, (out,))


def _prepare_separate_epilogue(problem: GemmProblem, bias: torch.Tensor) -> Prepared:
    if problem.dtype in ("fp8", "int8"):
        raise UnsupportedError(f"cublas has no epilogue in {problem.dtype}")
    a, b, out = problem.a, problem.b, problem.new_output()
    product = torch.empty_like(out)

    def call() -> None:
        with float32_products(tf32=problem.dtype == "tf32"):
            torch.addmm(bias, a, b, out=product)
        if problem.epilogue == "relu":
            torch.clamp_min(product, 0, out=out)
        else:
            torch.ops.aten.gelu.out(product, approximate="tanh", out=out)

    work = problem.work()
    again = out.numel() * out.element_size()
    return Prepared(
        call,
        (out,),
        expected_bytes_read=work.bytes_read + again,
        expected_bytes_written=work.bytes_written + again,
    )


def _prepare_fp8(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Prepared:
    _require_sixteens(a, b)
    scale = torch.ones((), device=a.device, dtype=torch.float32)

    def call() -> None:
        torch._scaled_mm(
            a, b, scale_a=scale, scale_b=scale, out_dtype=out.dtype, use_fast_accum=True, out=out
        )

    return Prepared(call, (out,), note="fast accumulation")


def _prepare_int8(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Prepared:
    if a.device.type == "cuda":
        _require_sixteens(a, b)
        # at::_int_mm: "self.size(0) needs to be greater than 16".
        if a.shape[0] <= 16:
            raise UnsupportedError(f"torch._int_mm takes more than 16 rows, not {a.shape[0]}")
    return Prepared(lambda: torch._int_mm(a, b, out=out), (out,))


def _require_sixteens(a: torch.Tensor, b: torch.Tensor) -> None:
    """cuBLASLt takes 8-bit operands only with N and K multiples of 16."""
    if a.shape[1] % 16 or b.shape[1] % 16:
        raise UnsupportedError(f"cuBLASLt needs N and K in 16s, not {b.shape[1]}, {a.shape[1]}")
