"""What kind of work an operator does: the table work_kinds.toml."""

import re
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from gpuprof.roofline.cost_models import family_of

COMMUNICATION: Final = "communication"
COPY: Final = "copy"
OPTIMIZER: Final = "optimizer"
# Of operators that the table does not name.
OTHER: Final = "other"
# Of device work that no operator is known to have launched.
NO_OPERATOR: Final = "no operator known"
# What the reports call the collectors' kinds of device work.
_BY_KERNEL_KIND: Final = {"collective": COMMUNICATION, "memcpy": COPY, "memset": COPY}
# Kinds of device work that are what they are, whatever operator launched them.
_WHATEVER_LAUNCHED: Final = ("collective",)


class _Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    operators: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
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


def kind_of_operator(name: str) -> str:
    """The kind of what an operator called `name` does; `OTHER` where nothing tells it."""
    named = next((kind for pattern, kind in _patterns() if pattern.search(name)), None)
    if named is not None:
        return named
    family = family_of(name)
    return next((kind.name for kind in _kinds() if family in kind.families), OTHER)


def kind_of_work(kernel_kind: str, operator: str | None, phase: str) -> str:
    """The kind of device work of the collectors' kind `kernel_kind`, launched by `operator`.

    Elementwise work, copies and the like are the optimizer's where that runs them; its matrix
    products are products.
    """
    if kernel_kind in _WHATEVER_LAUNCHED or operator is None:
        return _BY_KERNEL_KIND.get(kernel_kind, NO_OPERATOR)
    found = kind_of_operator(operator)
    if phase == OPTIMIZER and (found == OTHER or found in _of_an_optimizer()):
        return OPTIMIZER
    return found


@cache
def _of_an_optimizer() -> frozenset[str]:
    return frozenset(kind.name for kind in _kinds() if kind.optimizes)
