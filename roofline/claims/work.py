"""What the work of a claim costs, with the arithmetic in words."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpuprof.roofline.bus_bandwidth import bus_factor
from gpuprof.roofline.claims.byte_sizes import parse_bytes
from gpuprof.roofline.claims.table import Claim
from gpuprof.roofline.cost_models.attention_pairs import kept_pairs
from gpuprof.roofline.cost_models.cost import Flops

_ITEM_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}


class ClaimError(ValueError):
    """A claim lacks what its kind needs, or has it in another form; the text says which."""


@dataclass(frozen=True)
class ClaimedWork:
    """FLOPs, compulsory bytes, and bytes over each rank's link; how they come about in `sum`."""

    flops: tuple[Flops, ...] = ()
    bytes_moved: int = 0
    bus_bytes: int = 0
    sum: str = ""

    @property
    def flop_count(self) -> int:
        """All operations together."""
        return sum(part.count for part in self.flops)


def work_of(claim: Claim, earlier: Mapping[str, ClaimedWork | None]) -> ClaimedWork | None:
    """The work of `claim`, None where it is not known; `earlier` has that of other claims.

    Raises `ClaimError`.
    """
    if claim.kind == "gemm":
        return _gemm(claim)
    if claim.kind == "attention":
        return _attention(claim)
    if claim.kind == "all-reduce":
        return _all_reduce(claim)
    if claim.kind == "weights":
        return _weights(claim)
    if claim.kind == "sum":
        return _sum(claim, earlier)
    return None


def _gemm(claim: Claim) -> ClaimedWork:
    m, n, k = _numbers(claim, "MxNxK")
    count = 2 * m * n * k
    moved = (m * k + k * n + m * n) * _item_bytes(claim)
    return ClaimedWork((Flops("matmul", claim.dtype, count),), moved, 0, f"2 x {m} x {n} x {k}")


def _attention(claim: Claim) -> ClaimedWork:
    batch, heads, length, head_size = _numbers(claim, "BxHxSxD")
    kept = kept_pairs(length, length, causal=claim.causal)
    count = 4 * batch * heads * head_size * kept
    moved = 4 * batch * heads * length * head_size * _item_bytes(claim)
    words = f"4 x {batch * heads} heads x {head_size} x {kept} pairs"
    return ClaimedWork((Flops("matmul", claim.dtype, count),), moved, 0, words)


def _all_reduce(claim: Claim) -> ClaimedWork:
    if claim.ranks is None:
        raise ClaimError("an all-reduce needs ranks")
    try:
        message = parse_bytes(claim.size)
    except ValueError as error:
        raise ClaimError(str(error)) from error
    factor = bus_factor("all-reduce", claim.ranks)
    words = f"{claim.size} x 2 x {claim.ranks - 1}/{claim.ranks}"
    return ClaimedWork(bus_bytes=round(message * factor), sum=words)


def _weights(claim: Claim) -> ClaimedWork:
    if claim.parameters is None:
        raise ClaimError("weights need parameters")
    item = _item_bytes(claim)
    count = 2 * claim.parameters
    words = f"{claim.parameters / 1e9:.3g} G parameters x {item} B"
    return ClaimedWork((Flops("matmul", claim.dtype, count),), claim.parameters * item, 0, words)


def _sum(claim: Claim, earlier: Mapping[str, ClaimedWork | None]) -> ClaimedWork | None:
    parts = [earlier[name] for name in claim.parts]
    known = [part for part in parts if part is not None]
    if not parts or len(known) < len(parts):
        return None
    total: dict[str, int] = {}
    for part in known:
        for flops in part.flops:
            total[flops.precision] = total.get(flops.precision, 0) + claim.times * flops.count
    repeated = f"{claim.times} x " if claim.times > 1 else ""
    return ClaimedWork(
        tuple(Flops("matmul", precision, count) for precision, count in total.items()),
        claim.times * sum(part.bytes_moved for part in known),
        claim.times * sum(part.bus_bytes for part in known),
        f"{repeated}{len(parts)} parts" if len(parts) > 1 else f"{repeated}{claim.parts[0]}",
    )


def _numbers(claim: Claim, form: str) -> list[int]:
    count = form.count("x") + 1
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", claim.size) or claim.size.count("x") != count - 1:
        raise ClaimError(f"size is {claim.size!r}; expected {form}")
    return [int(number) for number in claim.size.split("x")]


def _item_bytes(claim: Claim) -> int:
    if claim.dtype not in _ITEM_BYTES:
        raise ClaimError(f"dtype is {claim.dtype!r}; expected {', '.join(_ITEM_BYTES)}")
    return _ITEM_BYTES[claim.dtype]
