"""What evidence is found in, and what it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from gpuprof.collectors.device_health import DeviceHealth
from gpuprof.collectors.manifest import Device
from gpuprof.roofline.analysis import DeviceState, RooflinePoint, Transfer
from gpuprof.roofline.step_figures import Exposed, StepSplit, StepTimes

# Of a step's time.
_WORTH_A_WORD: Final = 0.02


@dataclass(frozen=True)
class KnownOfStep:
    """What is known of a step."""

    times: StepTimes
    split: StepSplit | None
    exposed: Exposed | None
    ops: Sequence[RooflinePoint]
    transfers: Sequence[Transfer]
    # Finds the runtime and driver calls that began in the profiled steps; few settings ask.
    calls: Callable[[], pl.DataFrame]
    device: Device | None = None
    # During the timed steps.
    state: DeviceState | None = None
    health: DeviceHealth | None = None

    @property
    def step_ns(self) -> int | None:
        """The length that shares are of."""
        return self.times.length_ns if self.split is None else self.split.step_ns

    @property
    def whole(self) -> str:
        """What shares of `step_ns` are shares of, in words."""
        return "the step" if self.split is None else self.split.whole

    @property
    def whole_profiled(self) -> str:
        """What is known of profiled steps alone is of this, in words."""
        return "the trace" if self.times.definition == "whole trace" else "a profiled step"

    @property
    def profiled(self) -> int:
        """Steps that the points are sums over."""
        return max(1, self.times.profiled)

    def counts(self, nanoseconds: int) -> bool:
        """Whether so much of a step is worth a word; nothing is where its length is unknown."""
        return bool(self.step_ns) and nanoseconds >= _WORTH_A_WORD * (self.step_ns or 0)


@dataclass(frozen=True)
class CostEvidence:
    """Why a setting costs."""

    sentence: str
    gain_ns: int | None = None
    assumption: str = ""
