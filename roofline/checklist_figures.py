"""A kernel's checklist, as an analysis holds it."""

from typing import Literal

import msgspec

from gpuprof.roofline.phase import Phase

CheckSubject = Literal["occupancy", "stalls", "coalescing", "bank conflicts", "divergence", "tail"]


class CheckedValue(msgspec.Struct, frozen=True):
    """A figure that a check looked at; shares are of 1."""

    name: str
    value: float
    # "%" of a share, else what it counts.
    unit: str = ""


class KernelCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that may keep a kernel from its roof."""

    subject: CheckSubject
    values: tuple[CheckedValue, ...]
    # "counters" of launches that were counted, or what a "launch" alone tells.
    source: Literal["counters", "launch"]
    # The most that mending it could take off the kernel's time, of that; never more than what lies
    # above the roof, where that is known. None where the values do not tell it. Gains of several
    # checks overlap.
    gain_fraction: float | None = None

    @property
    def costs(self) -> bool | None:
        """Whether that is worth a thought; None where it is not known."""
        return None if self.gain_fraction is None else self.gain_fraction >= LEAST_GAIN


# Of a kernel's time: what NVIDIA's rules take for a hint worth giving begins between 1 and 10 %.
LEAST_GAIN = 0.05


class KernelChecklist(msgspec.Struct, frozen=True, kw_only=True):
    """The checks of one kernel of one operator, in the profiled steps."""

    # These tell which of `Analysis.kernels` it is.
    kernel: str
    op: str = ""
    op_detail: str = ""
    phase: Phase = ""
    # Launches whose counters were looked at; 0 where none was counted.
    counted: int = 0
    # Of all launches.
    device_ns: int
    checks: tuple[KernelCheck, ...]
