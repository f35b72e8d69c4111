"""Totals of the device work by kind, by phase and by precision: parts of an `Analysis`.

Frozen structs; unknown is None. Times are integer nanoseconds, fractions are of 1.
"""

import msgspec


class Subtotal(msgspec.Struct, frozen=True, kw_only=True):
    """All device work of one kind, phase or precision, summed over the profiled steps."""

    name: str
    device_ns: int
    # device_ns over the device time of all work.
    device_fraction: float
    # Of what is counted; None where nothing is.
    flops: int | None = None
    bytes_moved: int | None = None
    # Device time of the work that the two counts are of.
    flops_ns: int = 0
    bytes_ns: int = 0
    # The least time of the work that has a roof, and its device time.
    roof_ns: int | None = None
    roofed_ns: int = 0
    # roof_ns / roofed_ns. Over 1 as in `RooflinePoint`.
    roof_fraction: float | None = None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The same device work divided in three ways; each adds up to `device_ns` exactly.

    Each is sorted by device time, largest first.
    """

    device_ns: int
    # GEMM, attention, convolution, ...: roofline/totals/work_kinds.toml.
    by_kind: tuple[Subtotal, ...]
    # Communication and recomputation of a phase apart from the rest of it; () where nothing tells
    # phases.
    by_phase: tuple[Subtotal, ...] = ()
    # Of most of the matrix products of each call, else of most of its other operations.
    by_precision: tuple[Subtotal, ...] = ()
