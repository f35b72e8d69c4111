"""The matrix products of the profiled steps by kernel: what tensor cores have to do for them.

Time is that of one step at the peaks of the precisions, so figures of several precisions add up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.kernel_names.decode import decode
from gpuprof.roofline.machine.ceilings import Roof
from gpuprof.roofline.measured.tile_padding import Padding, least_padding
from gpuprof.roofline.work.work import Signature, Work

# Convolutions by these multiply less than the direct algorithm that the models count.
_FEWER_PRODUCTS: Final = ("Winograd", "FFT")


@dataclass(frozen=True)
class ProductKernels:
    """Launches of one kernel that do the products of one operator signature, in one step."""

    name: str
    device_ns: float
    # What tensor cores need for the counted products at their peak rate; 0.0 without such cores.
    needed_ns: float
    # Whether the kernel's name says that it uses none.
    without_tensor_cores: bool
    padding: Padding | None

    @property
    def padded_ns(self) -> float:
        """What filling up to whole tiles adds at least."""
        return 0.0 if self.padding is None else self.needed_ns * (self.padding.factor - 1)

    @property
    def algorithm(self) -> str:
        """The one with fewer products that its name tells; "" for none."""
        name = decode(self.name)
        return name.algorithm if name and name.algorithm.startswith(_FEWER_PRODUCTS) else ""

    @property
    def architecture(self) -> str:
        """What it was compiled for, "sm80"; "" where its name does not tell."""
        name = decode(self.name)
        return name.architecture if name else ""


def product_kernels(work: Work, roof: Roof) -> tuple[ProductKernels, ...]:
    """The kernels that do the products of a step, of those operators whose work counts at one."""
    mains = work.kernels.filter(
        pl.col("role").is_in(["sole", "main"]) & pl.col("signature").is_not_null()
    )
    groups = mains.group_by("name", "signature", "share", maintain_order=True).agg(
        pl.col("owner_id").n_unique().alias("calls"), pl.col("duration_ns").sum()
    )
    found = []
    for name, index, share, calls, duration_ns in groups.iter_rows():
        signature = work.signatures[index]
        products = _products(signature.cost, share)
        if not products:
            continue
        needed_ns = tensor_ns(products, roof)
        arithmetic = None if signature.call is None else signature.call.arithmetic
        found.append(
            ProductKernels(
                name=name,
                device_ns=duration_ns / work.steps,
                needed_ns=needed_ns * calls / work.steps,
                without_tensor_cores=arithmetic is not None and arithmetic.tensor_cores is False,
                padding=_padding(name, signature),
            )
        )
    return tuple(found)


def tensor_ns(products: Iterable[tuple[str, int]], roof: Roof) -> float:
    """What tensor cores need for matrix FLOPs by precision; nothing for those without cores."""
    total_ns = 0.0
    for precision, count in products:
        peak = roof.compute_rate("matmul", precision)
        if peak is not None and peak.unit == "tensor":
            total_ns += count / peak.rate * 1e9
    return total_ns


def of_older(kernels: Sequence[ProductKernels], capability: str | None) -> list[ProductKernels]:
    """Those compiled for an earlier architecture than the device's, whose instructions are slower.

    On an H200 products of sm75 keep tensor cores active 2.2 times as long for the same work.
    """
    own = (capability or "").partition(".")[0]
    if not own.isdigit():
        return []
    return [
        each
        for each in kernels
        if each.architecture.startswith("sm") and _major(each.architecture) < int(own)
    ]


def _products(cost: Cost | None, share: int | None) -> list[tuple[str, int]]:
    """The matrix FLOPs of one call by precision, or of one of its kernels."""
    if cost is None:
        return []
    flops = cost.flops if share is None else cost.shares[share].flops
    return [(part.precision, part.count) for part in flops or () if part.kind == "matmul"]


def _padding(name: str, signature: Signature) -> Padding | None:
    product = None if signature.cost is None else signature.cost.product
    return None if product is None else least_padding(name, product)


def _major(architecture: str) -> int:
    """Of "sm90" or "sm100": all digits but the last."""
    digits = "".join(filter(str.isdigit, architecture))
    return int(digits[:-1] or 0)
