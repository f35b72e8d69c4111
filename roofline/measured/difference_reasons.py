"""Why a kernel's counted traffic and operations are not those of its model.

Each rule looks at figures, shapes and the kernel's name, and answers only where they fit; the
first that fits is given. Where none does, the difference is called unexplained.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import combinations
from typing import Final, Literal

import msgspec

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost, MatrixProduct
from gpuprof.roofline.measured.counters import ExecutedWork
from gpuprof.roofline.measured.tile_padding import paddings
from gpuprof.roofline.measured_figures import UNEXPLAINED, DifferenceReason

# Differences in bytes up to this need no reason, and up to the second none where no rule fits:
# DRAM is read and written by whole sectors, and by others.
_TOLERANCE: Final = 0.05
_UNEXPLAINED_FROM: Final = 0.10
# How near a figure must come to what a rule predicts.
_FIT: Final = 0.03
# Launches that read no input read 10 to 15 kB on an H100 (recordings: ops.py, random fills), for
# their code and arguments.
_LAUNCH_BYTES: Final = 64 * 1024
_WRITE_BACK: Final = "PTX ISA, cache operators: the default store (.wb) is written back on eviction"
_BETWEEN_KERNELS: Final = (
    "CUDA C++ Programming Guide, device memory L2 access management: L2 keeps data across kernels"
)

About = Literal["tensor FLOPs", "bytes read", "bytes written"]


@dataclass(frozen=True)
class Differing:
    """One operator call as modelled and as counted."""

    kernels: tuple[str, ...]
    # None where the trace did not record the arguments.
    call: OpCall | None
    cost: Cost
    executed: ExecutedWork
    # Bytes that the device's L2 holds; None where unknown.
    l2_capacity: int | None
    # Kernels that the call launched. Counted one by one, each begins and ends with L2 as it is.
    launches: int = 1

    def held_by_l2(self, count: int) -> bool:
        """Whether L2 can have held `count` bytes before or after the call's launches."""
        return self.l2_capacity is not None and count <= self.l2_capacity * self.launches

    @property
    def l2_text(self) -> str:
        """The capacity for people."""
        size = _size(self.l2_capacity or 0)
        return size if self.launches == 1 else f"{size}, {self.launches} launches"


@dataclass(frozen=True)
class _Figure:
    about: About
    measured: int
    modelled: int

    @property
    def excess(self) -> int:
        return self.measured - self.modelled


Rule = Callable[[Differing, _Figure], "tuple[str, str] | None"]


def reasons(differing: Differing) -> tuple[DifferenceReason, ...]:
    """One reason for each figure that differs: bytes by over 5 %, tensor operations at all.

    Bytes that differ by 5 to 10 % have one only where a rule fits.
    """
    found = (_reason(differing, figure) for figure in _figures(differing))
    return tuple(reason for reason in found if reason is not None)


def _figures(differing: Differing) -> Iterator[_Figure]:
    cost, executed = differing.cost, differing.executed
    products: dict[str, int] = {}
    for part in cost.flops or ():
        if part.kind == "matmul":
            products[part.precision] = products.get(part.precision, 0) + part.count
    for precision, count in products.items():
        measured = executed.count("tensor", precision)
        # None or 0: they were not counted, or ran on the vector unit.
        if measured and measured != count:
            yield _Figure("tensor FLOPs", measured, count)
    pairs: tuple[tuple[About, int | None, int | None], ...] = (
        ("bytes read", executed.dram_bytes_read, cost.bytes_read),
        ("bytes written", executed.dram_bytes_written, cost.bytes_written),
    )
    for about, measured, modelled in pairs:
        if measured is None or modelled is None:
            continue
        if abs(measured - modelled) > _TOLERANCE * modelled:
            yield _Figure(about, measured, modelled)


def _reason(differing: Differing, figure: _Figure) -> DifferenceReason | None:
    for rule in _RULES[figure.about, figure.excess > 0]:
        found = rule(differing, figure)
        if found is not None:
            return DifferenceReason(figure.about, *found)
    small = abs(figure.excess) <= _UNEXPLAINED_FROM * figure.modelled
    if small and figure.about != "tensor FLOPs":
        return None
    return DifferenceReason(figure.about, UNEXPLAINED)


def _by_kernel_name(differing: Differing, figure: _Figure) -> tuple[str, str] | None:
    for row in _table():
        if (row.about, row.more) != (figure.about, figure.excess > 0):
            continue
        within = row.at_most is None or figure.measured <= row.at_most * figure.modelled * (
            1 + _FIT
        )
        if within and any(re.search(row.pattern, name) for name in differing.kernels):
            return row.text, row.source
    return None


def _launch_overhead(_: Differing, figure: _Figure) -> tuple[str, str] | None:
    """A small excess, which counts only beside little or no input."""
    if figure.excess > _LAUNCH_BYTES:
        return None
    return (
        f"{_size(figure.excess)} more than the operands: a launch reads its code and arguments too",
        "recordings on an H100: launches without input read 10 to 15 kB",
    )


def _operands_read_again(differing: Differing, figure: _Figure) -> tuple[str, str] | None:
    """A product whose operands do not stay in L2 until their last tile is done."""
    moved, capacity = differing.cost.bytes_moved(), differing.l2_capacity
    l2_bytes = differing.executed.l2_bytes
    if not differing.cost.matmul_flops() or moved is None or capacity is None or moved <= capacity:
        return None
    if l2_bytes is not None and figure.measured > l2_bytes:
        return None
    return (
        f"each operand is needed by many tiles of the result; with {_size(moved)} of operands and "
        f"results against {_size(capacity)} of L2 some of it is read from DRAM again",
        "tiled products: Lam, Rothberg and Wolf 1991; the device's L2 size",
    )


def _same_tensor_twice(differing: Differing, figure: _Figure) -> tuple[str, str] | None:
    """Arguments of one shape and type that may be one tensor, which a trace does not tell."""
    if differing.call is None:
        return None
    tensors = [one for one in differing.call.arguments if isinstance(one, Tensor)]
    alike = [
        (first, second)
        for first, second in combinations(tensors, 2)
        if first == second and first.elements > 1
    ]
    sizes = {second.bytes for _, second in alike}
    for size in sizes - {None}:
        assert size is not None
        copies = sum(one.bytes == size for one in tensors) - 1
        for repeats in range(1, copies + 1):
            left = figure.modelled - repeats * size
            if left > 0 and abs(figure.measured - left) <= _FIT * left + _LAUNCH_BYTES:
                return (
                    f"{repeats + 1} arguments have the same shape and type; if they are one tensor "
                    f"it is read once, and {_size(left)} are what is left",
                    "the trace's shapes; it does not tell which arguments share memory",
                )
    return None


def _already_in_l2(differing: Differing, figure: _Figure) -> tuple[str, str] | None:
    if not differing.held_by_l2(-figure.excess):
        return None
    return (
        f"{_size(-figure.excess)} fewer than the operands, which L2 ({differing.l2_text}) can have "
        "held from the work before, unless ncu flushed it (--cache-control all)",
        _BETWEEN_KERNELS,
    )


def _not_written_back(differing: Differing, figure: _Figure) -> tuple[str, str] | None:
    if not differing.held_by_l2(-figure.excess):
        return None
    return (
        f"{_size(-figure.excess)} of the result were still in L2 ({differing.l2_text}) when the "
        "kernel ended; they are written back later",
        _WRITE_BACK,
    )


def _written_back_for_others(differing: Differing, figure: _Figure) -> tuple[str, str] | None:
    if not differing.held_by_l2(figure.excess):
        return None
    return (
        f"{_size(figure.excess)} more than the result: what earlier work left unwritten in L2 "
        f"({differing.l2_text}) is written back when its lines are needed",
        _WRITE_BACK,
    )


def _whole_tiles_of_a_mask(differing: Differing, figure: _Figure) -> tuple[str, str] | None:
    full = differing.cost.full_attention_flops
    if full is None or not figure.modelled < figure.measured <= full:
        return None
    return (
        f"{figure.measured / figure.modelled - 1:.1%} more than the pairs that the mask keeps and "
        f"{1 - figure.measured / full:.1%} fewer than all: tiles on the mask's edge run whole",
        "Dao 2023, FlashAttention-2: only blocks that the mask leaves empty are skipped",
    )


def _rounded_to_tiles(differing: Differing, figure: _Figure) -> tuple[str, str] | None:
    """A product whose sizes are filled up to the tile that stands in the kernel's name."""
    sizes = None if differing.call is None else product_sizes(differing.call)
    if sizes is None:
        return None
    batch, m, k, n = sizes
    for name in differing.kernels:
        for padding in paddings(name, MatrixProduct(m, k, n, batch)):
            if padding.flops == figure.measured:
                return (
                    f"the product's sizes are filled up to tiles of {padding.text}, which run "
                    "whole",
                    "the tile in the kernel's name, with which the count agrees exactly",
                )
    return None


def product_sizes(call: OpCall) -> tuple[int, int, int, int] | None:
    """(batch, M, K, N) of a matrix product; None for other operators and unusual shapes."""
    first = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}.get(
        call.name, 0 if call.name == "aten::_scaled_mm" else None
    )
    if first is None:
        return None
    left, right = call.tensor(first), call.tensor(first + 1)
    if left is None or right is None or not len(left.shape) == len(right.shape) >= 2:
        return None
    *batch, m, k = left.shape
    return math.prod(batch), m, k, right.shape[-1]


_RULES: Final[dict[tuple[About, bool], tuple[Rule, ...]]] = {
    ("tensor FLOPs", True): (_whole_tiles_of_a_mask, _rounded_to_tiles, _by_kernel_name),
    ("tensor FLOPs", False): (_by_kernel_name,),
    ("bytes read", True): (_launch_overhead, _by_kernel_name, _operands_read_again),
    ("bytes read", False): (_same_tensor_twice, _already_in_l2),
    ("bytes written", True): (_by_kernel_name, _written_back_for_others),
    ("bytes written", False): (_not_written_back,),
}


def _size(count: int) -> str:
    """A byte count for people, in decimal units."""
    if count >= 1_000_000:
        return f"{count / 1e6:,.1f} MB"
    return f"{count / 1e3:,.1f} kB" if count >= 1_000 else f"{count} B"


class _KernelRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    about: About
    more: bool
    text: str
    source: str
    at_most: float | None = None


class _Table(msgspec.Struct, frozen=True):
    kernel: tuple[_KernelRow, ...]


@lru_cache(maxsize=1)
def _table() -> tuple[_KernelRow, ...]:
    text = files("gpuprof.roofline.measured").joinpath("difference_reasons.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).kernel
