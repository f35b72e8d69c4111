"""Figures by hardware counters beside the modelled ones, as an analysis holds them."""

from typing import Literal

import msgspec

from gpuprof.collectors.counting import CountingPass
from gpuprof.roofline.machine.ceilings import Unit
from gpuprof.roofline.phase import Phase


class Measured(msgspec.Struct, frozen=True):
    """A figure by hardware counters beside the modelled one."""

    measured: int | None
    modelled: int | None

    @property
    def ratio(self) -> float | None:
        """Measured over modelled."""
        if self.measured is None or not self.modelled:
            return None
        return self.measured / self.modelled


class MeasuredFlops(Measured, frozen=True):
    """Operations of a precision that ran on one unit. 16-bit vector work counts as fp32."""

    unit: Unit
    precision: str


UNEXPLAINED = "unexplained"
# An assumption of what was counted instead of modelled.
COUNTED = "counted by Nsight Compute: DRAM traffic is what moved, not the least"


class DifferenceReason(msgspec.Struct, frozen=True):
    """Why a measured figure is not the modelled one; `source` says how we know."""

    about: Literal["tensor FLOPs", "bytes read", "bytes written"]
    # One sentence; `UNEXPLAINED` where no known reason fits the figures.
    text: str
    source: str = ""


class MeasuredKernel(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernels of one operator signature did, as Nsight Compute counted them.

    Figures are means over `calls` calls of the operator, of which all kernels were counted; where
    `calls` is 0, means over `launches`, and `not_compared` says why there is no model.
    """

    kernels: tuple[str, ...]
    op: str
    detail: str
    phase: Phase
    launches: int
    calls: int
    # Their device time in the trace, not under ncu.
    device_ns: int
    flops: tuple[MeasuredFlops, ...]
    bytes_read: Measured
    bytes_written: Measured
    # Between L1 and L2, both ways.
    l2_bytes: int | None
    # Between the SMs and their L1. Copies that bypass it (TMA on Hopper and later) are not in it.
    l1_bytes: int | None = None
    not_compared: str = ""
    reasons: tuple[DifferenceReason, ...] = ()

    @property
    def flops_per_l2_byte(self) -> float | None:
        """Arithmetic intensity at the L2 level, of all counted operations."""
        return self._flops_per(self.l2_bytes)

    @property
    def flops_per_l1_byte(self) -> float | None:
        """Arithmetic intensity at the L1 level, of all counted operations."""
        return self._flops_per(self.l1_bytes)

    @property
    def flops_per_dram_byte(self) -> float | None:
        """Arithmetic intensity at DRAM, of all counted operations."""
        read, written = self.bytes_read.measured, self.bytes_written.measured
        return self._flops_per(None if read is None or written is None else read + written)

    def _flops_per(self, bytes_moved: int | None) -> float | None:
        counts = [part.measured for part in self.flops if part.measured is not None]
        return sum(counts) / bytes_moved if bytes_moved and counts else None


class MeasuredWork(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels with hardware counters, those with most device time first."""

    launches: int
    launches_in_trace: int
    kernels: tuple[MeasuredKernel, ...]
    # How the launches were chosen, and what counting took; None where a report was given.
    counting: CountingPass | None = None
