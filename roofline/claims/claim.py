"""What a claim states: the structs of a table of claims, and the keys of each kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec

ClaimKind = Literal[
    "gemm",
    "convolution",
    "attention",
    "all-reduce",
    "weights",
    "training",
    "sum",
    "throughput",
    "unsized",
]
# Bounds that no real figure reaches: NaN, infinity, and numbers too large to print are refused.
_Count = Annotated[int, msgspec.Meta(ge=1, le=10**18)]
_Figure = Annotated[float, msgspec.Meta(ge=1e-6, le=1e15)]


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One claim, with what its source states; `KEYS` says which fields a kind has.

    Figures stay in the unit of the source. What is not stated is "" or None.
    """

    name: str
    # Words of a row of the device table: "A100", "H100 SXM".
    gpu: str = ""
    kind: ClaimKind
    size: str = ""
    dtype: str = ""
    causal: bool = False
    ranks: _Count | None = None
    parameters: _Count | None = None
    parts: tuple[str, ...] = ()
    times: _Count = 1
    tokens: _Count | None = None
    of: str = ""
    # The name of a claim that says the same of the same work.
    same_as: str = ""
    time_us: _Figure | None = None
    time_ms: _Figure | None = None
    time_s: _Figure | None = None
    # For each GPU.
    tflops: _Figure | None = None
    bus_gb_per_s: _Figure | None = None
    # Share of the dense peak, in percent.
    mfu_percent: _Figure | None = None
    tokens_per_s: _Figure | None = None

    @property
    def time_ns(self) -> float | None:
        """The claimed time; None where none is stated."""
        if self.time_us is not None:
            return self.time_us * 1e3
        if self.time_ms is not None:
            return self.time_ms * 1e6
        return None if self.time_s is None else self.time_s * 1e9

    @property
    def stated_time(self) -> str:
        """The claimed time as it is stated: "8.1 s"; "" where none is."""
        for value, unit in ((self.time_us, "µs"), (self.time_ms, "ms"), (self.time_s, "s")):
            if value is not None:
                return f"{value:.15g} {unit}"
        return ""


class ClaimTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Claims of one source."""

    source: str
    claim: tuple[Claim, ...]


@dataclass(frozen=True)
class KindKeys:
    """Keys of one kind of claim."""

    # Without one of these there is nothing to count.
    needed: tuple[str, ...]
    # What may be claimed of it.
    figures: tuple[str, ...]
    optional: tuple[str, ...] = ()


TIMES: Final = ("time_us", "time_ms", "time_s")
_COMPUTE: Final = (*TIMES, "tflops", "mfu_percent")
# Keys of every kind.
COMMON: Final = ("name", "gpu", "kind", "dtype", "same_as")
KEYS: Final[Mapping[ClaimKind, KindKeys]] = {
    "gemm": KindKeys(("size", "dtype"), _COMPUTE),
    "convolution": KindKeys(("size", "dtype"), _COMPUTE),
    "attention": KindKeys(("size", "dtype"), _COMPUTE, ("causal",)),
    # A message of so many bytes, or the gradients of so many parameters in a dtype.
    "all-reduce": KindKeys(("size", "ranks"), (*TIMES, "bus_gb_per_s"), ("parameters",)),
    "weights": KindKeys(("parameters", "dtype"), _COMPUTE),
    "training": KindKeys(("size", "parameters", "ranks", "dtype"), _COMPUTE),
    "sum": KindKeys(("parts",), _COMPUTE, ("times",)),
    "throughput": KindKeys(("tokens", "of"), ("tokens_per_s",)),
    "unsized": KindKeys((), TIMES, ("of",)),
}


def not_stated(claim: Claim) -> tuple[str, ...]:
    """What `claim` leaves out of what its verdict needs, in words: "GPU", "dtype", "ranks"."""
    keys = KEYS[claim.kind]
    needed = keys.needed
    if claim.kind == "all-reduce" and claim.parameters is not None:
        needed = ("parameters", "dtype", "ranks")
    missing = [
        "claim of the time" if key == "of" else key
        for key in needed
        if getattr(claim, key) in ("", None, ())
    ]
    # A share of the peak alone gives no time: the peak is what it is compared with.
    figures = [key for key in keys.figures if key != "mfu_percent"]
    if all(getattr(claim, key) is None for key in figures):
        missing.append("tokens a second" if claim.kind == "throughput" else "time or rate")
    # A throughput follows from a time, on whichever GPU.
    if not claim.gpu and claim.kind not in ("throughput", "unsized"):
        missing.insert(0, "GPU")
    return tuple(missing)
