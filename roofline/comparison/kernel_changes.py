"""The kernels of two analyses: what each took before and after."""

from typing import Literal

import msgspec

from gpuprof.roofline.classes import ClassName
from gpuprof.roofline.copies import is_over_link

# How two kernels were found to be the same work, surest first; or that one side has it alone.
# "operator" is another kernel for the same operator and shapes: renamed, or replaced. "fused": the
# kernels of one side do what a compiler's kernels of the other do, by the operators in their names.
# "time" is a guess: what was left over, with the same number of calls and the nearest time.
Match = Literal["name", "normalised name", "operator", "fused", "time", "new", "removed"]


class KernelSide(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one kernel on one side, in one step."""

    name: str
    # Names of further kernels that are taken together with it, by time.
    others: tuple[str, ...] = ()
    # Of all its launches; "" where unknown or where they differ. Of fused work: all operators.
    op: str
    shapes: str
    phase: str
    kind: str
    calls: float
    device_ns: float
    bottleneck: ClassName
    # The label of the ceiling that binds, and the share of it that was reached.
    roof: str
    roof_fraction: float | None
    # Of one step; None where they are not known of all its launches.
    flops: float | None = None
    bytes: float | None = None

    @property
    def arithmetic_intensity(self) -> float | None:
        """FLOP per byte; None where it is unknown, or without bytes."""
        return self.flops / self.bytes if self.flops is not None and self.bytes else None

    @property
    def flops_per_s(self) -> float | None:
        """None where it is unknown."""
        if self.flops is None or not self.device_ns:
            return None
        return self.flops / self.device_ns * 1e9

    @property
    def mean_ns(self) -> float:
        """Time of one call."""
        return self.device_ns / self.calls if self.calls else 0.0


class KernelChange(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel, or several of one name taken together, before and after."""

    match: Match
    base: KernelSide | None
    head: KernelSide | None
    change_ns: float
    # The two parts of change_ns: other numbers of calls, and calls of other length.
    by_count_ns: float
    by_mean_ns: float

    @property
    def renamed(self) -> bool:
        """Whether the same work has another name."""
        return (
            self.match not in ("name", "fused")
            and self.base is not None
            and self.head is not None
            and self.base.name != self.head.name
        )

    @property
    def name(self) -> str:
        """The name, or "before -> after"."""
        names = [side.name for side in (self.base, self.head) if side is not None]
        return " -> ".join(dict.fromkeys(names))

    @property
    def side(self) -> KernelSide:
        """The head's, or the base's where it is gone."""
        found = self.head or self.base
        assert found is not None
        return found


def is_hideable(kernel: KernelChange) -> bool:
    """Whether a step pays for `kernel` only where nothing hides it: communication, copies."""
    side = kernel.side
    return side.kind == "collective" or is_over_link(side.kind, side.name)
