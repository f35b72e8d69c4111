"""What the work of a claim costs, with the arithmetic in words."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpuprof.roofline.bus_bandwidth import bus_factor
from gpuprof.roofline.claims.byte_sizes import parse_bytes
from gpuprof.roofline.claims.claim import Claim
from gpuprof.roofline.claims.convolution_shape import ConvolutionShape, parse_convolution
from gpuprof.roofline.cost_models.attention_pairs import kept_pairs
from gpuprof.roofline.cost_models.cost import Flops

ITEM_BYTES: Final[Mapping[str, int]] = {
    "fp64": 8,
    "fp32": 4,
    "tf32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8": 1,
    "int8": 1,
}

# FLOPs. Sums of sums can grow beyond what a float holds.
_MOST_WORK: Final = 10**40


class ClaimError(ValueError):
    """`key` of a claim has a value of another form than its kind needs; the text says which."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


@dataclass(frozen=True)
class ClaimedWork:
    """FLOPs, compulsory bytes, and bytes over each rank's link, all of one GPU.

    `sum` says how they come about.
    """

    flops: tuple[Flops, ...] = ()
    bytes_moved: int = 0
    bus_bytes: int = 0
    sum: str = ""

    @property
    def flop_count(self) -> int:
        """All operations together."""
        return sum(part.count for part in self.flops)


def check_form(claim: Claim) -> None:
    """Raise `ClaimError` where something that `claim` states has not the form of its kind."""
    if claim.gpu and not claim.gpu.strip():
        raise ClaimError("gpu", f"{claim.gpu!r} names no GPU")
    if claim.dtype and claim.dtype not in ITEM_BYTES:
        raise ClaimError("dtype", f"{claim.dtype!r} is none of {', '.join(ITEM_BYTES)}")
    if claim.kind == "all-reduce":
        if claim.size and claim.parameters is not None:
            raise ClaimError("parameters", "the size of the message is stated too")
        if claim.size:
            _message_size(claim)
        if claim.ranks == 1:
            raise ClaimError("ranks", "an all-reduce needs at least 2")
    elif claim.size and claim.kind == "convolution":
        _convolution_shape(claim)
    elif claim.size:
        _numbers(claim)


def work_of(claim: Claim, earlier: Mapping[str, ClaimedWork | None]) -> ClaimedWork | None:
    """The work of `claim`, None where it is not known; `earlier` has that of other claims.

    `claim` states all that its kind needs. Raises `ClaimError`.
    """
    if claim.kind == "gemm":
        return _gemm(claim)
    if claim.kind == "convolution":
        return _convolution(claim)
    if claim.kind == "attention":
        return _attention(claim)
    if claim.kind == "all-reduce":
        return _all_reduce(claim)
    if claim.kind == "weights":
        return _weights(claim)
    if claim.kind == "training":
        return _training(claim)
    if claim.kind == "sum":
        return _sum(claim, earlier)
    return None


def message_bytes(claim: Claim) -> int:
    """Bytes of the message of an all-reduce: its size, or the gradients of its parameters."""
    if claim.parameters is not None:
        return claim.parameters * ITEM_BYTES[claim.dtype]
    return _message_size(claim)


def attention_size(claim: Claim) -> tuple[int, int, int, int]:
    """Batch, heads, length and head size of an attention."""
    batch, heads, length, head_size = _numbers(claim)
    return batch, heads, length, head_size


def _gemm(claim: Claim) -> ClaimedWork:
    m, n, k = _numbers(claim)
    count = 2 * m * n * k
    moved = (m * k + k * n + m * n) * ITEM_BYTES[claim.dtype]
    return ClaimedWork((Flops("matmul", claim.dtype, count),), moved, 0, f"2 x {m} x {n} x {k}")


def _convolution(claim: Claim) -> ClaimedWork:
    shape = _convolution_shape(claim)
    elements = shape.touched_elements + shape.weight_elements + shape.output_elements
    words = (
        f"2 x {shape.n} x {shape.k} x {shape.p} x {shape.q} "
        f"x {shape.c // shape.groups} x {shape.r} x {shape.s}"
    )
    flops = Flops("matmul", claim.dtype, shape.flops)
    return ClaimedWork((flops,), elements * ITEM_BYTES[claim.dtype], 0, words)


def _attention(claim: Claim) -> ClaimedWork:
    batch, heads, length, head_size = attention_size(claim)
    kept = kept_pairs(length, length, causal=claim.causal)
    count = 4 * batch * heads * head_size * kept
    moved = 4 * batch * heads * length * head_size * ITEM_BYTES[claim.dtype]
    words = f"4 x {batch * heads} heads x {head_size} x {kept} pairs"
    return ClaimedWork((Flops("matmul", claim.dtype, count),), moved, 0, words)


def _all_reduce(claim: Claim) -> ClaimedWork:
    assert claim.ranks is not None
    message = claim.size
    if claim.parameters is not None:
        message = f"{_billions(claim.parameters)} x {ITEM_BYTES[claim.dtype]} B"
    crossing = round(message_bytes(claim) * bus_factor("all-reduce", claim.ranks))
    return ClaimedWork(bus_bytes=crossing, sum=f"{message} x 2 x {claim.ranks - 1}/{claim.ranks}")


def _weights(claim: Claim) -> ClaimedWork:
    assert claim.parameters is not None
    item = ITEM_BYTES[claim.dtype]
    flops = Flops("matmul", claim.dtype, 2 * claim.parameters)
    words = f"{_billions(claim.parameters)} x {item} B"
    return ClaimedWork((flops,), claim.parameters * item, 0, words)


def _training(claim: Claim) -> ClaimedWork:
    """The share of one GPU in 6 N D (Kaplan et al. 2020, section 2.1); attention comes on top."""
    assert claim.parameters is not None
    assert claim.ranks is not None
    batch, length = _numbers(claim)
    # Rounded down: the work is a lower bound.
    count = 6 * claim.parameters * batch * length // claim.ranks
    words = f"6 x {_billions(claim.parameters)} x {batch} x {length} tokens / {claim.ranks} GPUs"
    return ClaimedWork((Flops("matmul", claim.dtype, count),), 0, 0, words)


def _sum(claim: Claim, earlier: Mapping[str, ClaimedWork | None]) -> ClaimedWork | None:
    parts = [earlier[name] for name in claim.parts]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    total: dict[str, int] = {}
    for part in known:
        for flops in part.flops:
            total[flops.precision] = total.get(flops.precision, 0) + claim.times * flops.count
    if max((*total.values(), claim.times), default=0) > _MOST_WORK:
        raise ClaimError("times", "so much work has no time worth printing")
    repeated = f"{claim.times} x " if claim.times > 1 else ""
    return ClaimedWork(
        tuple(Flops("matmul", precision, count) for precision, count in total.items()),
        claim.times * sum(part.bytes_moved for part in known),
        claim.times * sum(part.bus_bytes for part in known),
        f"{repeated}{len(parts)} parts" if len(parts) > 1 else f"{repeated}{claim.parts[0]}",
    )


def _billions(parameters: int) -> str:
    return f"{parameters / 1e9:.3g} G parameters"


_FORMS: Final[Mapping[str, str]] = {"gemm": "MxNxK", "attention": "BxHxSxD", "training": "BxS"}


def _numbers(claim: Claim) -> list[int]:
    form = _FORMS[claim.kind]
    numbers = claim.size.split("x")
    # Digits are limited, so that no product is too large to print.
    if not all(re.fullmatch(r"[1-9]\d{0,11}", number, re.ASCII) for number in numbers) or (
        len(numbers) != len(form.split("x"))
    ):
        raise ClaimError("size", f"{claim.size!r} is not {form}")
    return [int(number) for number in numbers]


def _convolution_shape(claim: Claim) -> ConvolutionShape:
    try:
        return parse_convolution(claim.size)
    except ValueError as error:
        raise ClaimError("size", str(error)) from error


def _message_size(claim: Claim) -> int:
    try:
        size = parse_bytes(claim.size)
    except ValueError as error:
        raise ClaimError("size", str(error)) from error
    if not size:
        raise ClaimError("size", "a message has at least 1 byte")
    return size
