"""What kind of work an operator or a kernel does: the table work_kinds.toml."""

import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

import msgspec

from gpuprof.roofline.cost_models import family_of
from gpuprof.roofline.kernel_names.decode import decode

COMMUNICATION: Final = "communication"
COPY: Final = "copy"
CONVOLUTION: Final = "convolution"
GEMM: Final = "GEMM"
OPTIMIZER: Final = "optimizer"
# Of what neither an operator nor the name of its kernel tells.
OTHER: Final = "other"
# What the reports call the collectors' kinds of device work.
_BY_KERNEL_KIND: Final = {"collective": COMMUNICATION, "memcpy": COPY, "memset": COPY}


class _Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    operators: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    optimizes: bool = False


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: tuple[_Kind, ...]


@cache
def _kinds() -> tuple[_Kind, ...]:
    text = files("gpuprof.roofline.totals").joinpath("work_kinds.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).kind


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple(
        (re.compile(pattern, re.IGNORECASE), kind.name)
        for kind in _kinds()
        for pattern in kind.operators
    )


@lru_cache(maxsize=4096)
def kind_of_operator(name: str) -> str:
    """The kind of what an operator called `name` does; `OTHER` where nothing tells it."""
    named = next((kind for pattern, kind in _patterns() if pattern.search(name)), None)
    if named is not None:
        return named
    family = family_of(name)
    return next((kind.name for kind in _kinds() if family in kind.families), OTHER)


def kind_of_kernel(kernel_kind: str, name: str) -> str:
    """The kind of device work by itself: of the collectors' kind `kernel_kind`, called `name`."""
    if kernel_kind in _BY_KERNEL_KIND:
        return _BY_KERNEL_KIND[kernel_kind]
    decoded = decode(name)
    if decoded is None:
        return OTHER
    return next((kind.name for kind in _kinds() if decoded.function in kind.functions), OTHER)


def kind_of_work(kernel_kind: str, name: str, operator: str | None, phase: str) -> str:
    """The kind of device work of the collectors' kind `kernel_kind`, launched by `operator`.

    Elementwise work, copies and the like are the optimizer's where that runs them; its matrix
    products are products. Where nothing is known of the operator the kernel's name tells.
    """
    if kernel_kind == "collective":
        return COMMUNICATION
    found = OTHER if operator is None else kind_of_operator(operator)
    if found == OTHER:
        found = kind_of_kernel(kernel_kind, name)
    if phase == OPTIMIZER and (found == OTHER or found in _of_an_optimizer()):
        return OPTIMIZER
    return found


@cache
def _of_an_optimizer() -> frozenset[str]:
    return frozenset(kind.name for kind in _kinds() if kind.optimizes)
