"""What kernels lose to the communication that runs beside them: a part of an `Analysis`."""

import msgspec

from gpuprof.roofline.phase import Phase


class SlowedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """Launches of one kernel from one operator signature, some alone and some under a collective.

    Launches are compared with those of the same grid and block only.
    """

    name: str
    # The operator that launched it and its shapes, "" where none did.
    op: str = ""
    op_detail: str = ""
    phase: Phase = ""
    # Launches that a collective overlapped for all of their time, and those that none did.
    under: int
    alone: int
    # The time of the first over what they take alone, by the median.
    ratio: float
    # What that is in one step.
    lost_ns: int


class SlowedByCommunication(msgspec.Struct, frozen=True, kw_only=True):
    """All such kernels, those first that lose most."""

    # In one step, of all of them.
    lost_ns: int
    kernels: tuple[SlowedKernel, ...]

    @property
    def ratio(self) -> float:
        """The time of all launches under a collective over what they take alone."""
        under = sum(one.lost_ns / (one.ratio - 1) * one.ratio for one in self.kernels)
        return under / (under - self.lost_ns)
