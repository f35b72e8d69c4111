"""What kept a product of matrices from faster kernels: the table product.toml."""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.explanation_figures import Backend, Condition, Dispatch
from gpuprof.roofline.kernel_names.decode import KernelName
from gpuprof.roofline.points.tensor_path import is_misaligned
from gpuprof.roofline.totals.work_kinds import GEMM, kind_of_operator

_PRODUCT: Final = "gemm"
# TF32 came with this compute capability.
_FIRST_WITH_TF32: Final = 8


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    backend: str
    check: str
    text: str
    remedy: str
    source: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    condition: tuple[_Row, ...]


def product_dispatch(
    name: str,
    call: OpCall | None,
    kernels: Sequence[KernelName],
    compute_capability: str | None,
) -> Dispatch | None:
    """What the operator `name`, whose call is `call`, violates of the conditions; None for nothing.

    `kernels` are the names of its kernels, the largest first.
    """
    main = next((each for each in kernels if each.function == _PRODUCT), None)
    if main is None or call is None or kind_of_operator(name) != GEMM:
        return None
    others = []
    for row in _rows():
        recorded = _CHECKS[row.check](call, main, compute_capability)
        if recorded is not None:
            violated = Condition(row.text, recorded, row.remedy, row.source)
            others.append(Backend(name=row.backend, violated=(violated,)))
    if not others:
        return None
    ran = main.library or "a kernel whose name does not tell its library"
    source = "; ".join(each.source for backend in others for each in backend.violated)
    return Dispatch(operator=name, ran=ran, others=tuple(others), source=source)


def _aligned_rows(call: OpCall, main: KernelName, compute_capability: str | None) -> str | None:
    if not is_misaligned(call):
        return None
    tensors = [argument for argument in call.arguments if isinstance(argument, Tensor)]
    return ", ".join("x".join(map(str, tensor.shape)) for tensor in tensors)


def _not_in_float32(call: OpCall, main: KernelName, compute_capability: str | None) -> str | None:
    major = (compute_capability or "").partition(".")[0]
    if main.precision != "fp32" or not major.isdigit() or int(major) < _FIRST_WITH_TF32:
        return None
    tensors = [argument for argument in call.arguments if isinstance(argument, Tensor)]
    types = {tensor.dtype.name for tensor in tensors if tensor.dtype is not None}
    return "a kernel of float32" if types == {"float32"} else None


# What was recorded where the condition does not hold, None where it does.
_CHECKS: Final[dict[str, Callable[[OpCall, KernelName, str | None], str | None]]] = {
    "aligned_rows": _aligned_rows,
    "not_in_float32": _not_in_float32,
}


@cache
def _rows() -> tuple[_Row, ...]:
    text = files("gpuprof.roofline.explain").joinpath("product.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).condition
