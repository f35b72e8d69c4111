"""What a kernel is by its name: communication, a copy, a fill, or a kernel that computes.

The names are in `kernel_kinds.toml`, each with its source. No polars here: reports read the table,
too.
"""

from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

# As compilers print them, and as they mangle them (_ZN4vllm26cross_device_reduce_1stage...).
_BEFORE_A_NAME: Final = r"^(?:(?:void )?(?:(?:\(anonymous namespace\)|\w+)::)*|_Z\w*?\d)"
_BEFORE_A_NAMESPACE: Final = r"^(?:void )?"


class KindRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: Literal["collective", "memcpy", "memset"]
    source: str
    names: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    collective: str | None = None

    @property
    def pattern(self) -> str:
        if self.within:
            return f"{_BEFORE_A_NAMESPACE}(?:{'|'.join(self.within)})::"
        return f"{_BEFORE_A_NAME}(?:{'|'.join(self.names)})"


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kinds: tuple[KindRow, ...]


@cache
def kind_rows() -> tuple[KindRow, ...]:
    """The rows of `kernel_kinds.toml`, the first that matches a name first."""
    text = files("gpuprof.collectors").joinpath("kernel_kinds.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).kinds
