"""Power of a device that has no NVML, as Linux's hwmon tells it."""

import time
from pathlib import Path

import polars as pl

from gpuprof.collectors.live.collector import Availability, CollectorRow, Note, Scope
from gpuprof.collectors.live.periodic import PeriodicThread

_HWMON = Path("/sys/class/hwmon")


def _sensor() -> Path | None:
    """The file with the power of the first Example X1, in microwatts; None where there is none."""
    for folder in sorted(_HWMON.glob("hwmon*")):
        name, power = folder / "name", folder / "power1_average"
        if power.is_file() and name.is_file() and name.read_text().strip() == "example_x1":
            return power
    return None


def find() -> Availability:
    """Whether the device is here."""
    sensor = _sensor()
    if sensor is None:
        return Availability(False, "no Example X1 in this machine")
    return Availability(True, str(sensor))


class BoardPower:
    """Reads the sensor every so often, from a thread of its own."""

    def __init__(self, scope: Scope) -> None:
        self.notes: list[Note] = []
        self._rank = scope.rank
        self._sensor = _sensor()
        self._rows: list[dict[str, int]] = []
        self._thread = PeriodicThread(
            self._read, name="example board power", interval_ns=scope.interval_ns
        )

    def start(self) -> None:
        if self._sensor is not None:
            self._thread.start()

    def slow_down(self) -> None:
        self._thread.slow_down()

    def stop(self) -> dict[str, pl.DataFrame]:
        self._thread.stop()
        return {"samples": pl.DataFrame(self._rows)} if self._rows else {}

    def _read(self) -> None:
        assert self._sensor is not None
        row = {"rank": self._rank, "time_ns": time.time_ns(), "device": 0}
        self._rows.append({**row, "power_milliwatts": int(self._sensor.read_text()) // 1000})


COLLECTOR = CollectorRow(
    name="Board power of Example X1",
    subject="GPU state",
    needs_gpu=False,
    fills={"samples": ("power_milliwatts",)},
    find=find,
    make=BoardPower,
)
