"""Ceilings: what a device can do at most, each with where the figure comes from.

Datasheet peaks and rates measured here are two sources that never meet in one percentage: an
analysis picks one (`roof_source`) and takes every percentage against that.
"""

from typing import Literal

import msgspec

from gpuprof.collectors.manifest import Calibration, Device
from gpuprof.roofline.cost_models.cost import FlopKind
from gpuprof.roofline.devices import DeviceSpec

Source = Literal["datasheet", "measured"]
Unit = Literal["tensor", "vector"]


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """One roof. Compute: FLOP/s of a unit in a precision; memory: bytes/s of a level."""

    kind: Literal["compute", "memory"]
    rate: float
    source: Source
    # A page, document or, for measured ones, the method.
    reference: str
    unit: Unit | None = None
    precision: str | None = None
    level: str | None = None
    # The clock that a datasheet peak assumes.
    clock_mhz: int | None = None
    # (maximum - minimum) / median of the repeats of a measured rate.
    spread: float | None = None

    @property
    def label(self) -> str:
        """For people: "bf16 tensor (datasheet, dense)", "DRAM (measured)"."""
        if self.kind == "memory":
            return f"{self.level} ({self.source})"
        quality = "datasheet, dense" if self.source == "datasheet" else "measured"
        return f"{self.precision} {self.unit} ({quality})"
