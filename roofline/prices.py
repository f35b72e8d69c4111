"""What steps cost at the prices that gpuprof.toml gives."""

from typing import Annotated, TypeAlias

import msgspec

from gpuprof.roofline.energy_figures import Energy
from gpuprof.roofline.step_figures import StepTimes

Price: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the user pays: for an hour of one device, and for energy."""

    currency: str = ""
    device_hour: Price | None = None
    kilowatt_hour: Price | None = None


def cost_per_step(times: StepTimes, energy: Energy | None, prices: Prices) -> float | None:
    """What one device costs in one step: its time at `device_hour`, its energy at `kilowatt_hour`.

    Of the mean timed step. None where no step was timed, no price is given, or the price of what
    is not known.
    """
    if not times.timed or not times.samples_ns:
        return None
    parts = []
    if prices.device_hour is not None:
        seconds = sum(times.samples_ns) / len(times.samples_ns) / 1e9
        parts.append(seconds / 3600 * prices.device_hour)
    if prices.kilowatt_hour is not None:
        if energy is None:
            return None
        parts.append(energy.joules_per_step / 3.6e6 * prices.kilowatt_hour)
    return sum(parts) if parts else None


def set_prices(prices: Prices) -> None:
    """Let reports of this process say what steps cost."""
    global _prices
    _prices = prices


def prices() -> Prices:
    """Those that were set; without any figure where none were."""
    return _prices


_prices = Prices()
