"""GPU state while the program runs: clocks, power, temperature and traffic, sampled from NVML.

A call that a device or driver does not support disables that one column of that device, and is
noted once; a value that the column cannot hold is left out. Where there is no NVML at all, the
sampler does nothing and says so.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from gpuprof.collectors.errors import reason
from gpuprof.collectors.live.collected import Collected
from gpuprof.collectors.live.collector import (
    DEFAULT_INTERVAL_NS,
    Availability,
    LatestReading,
    Note,
    Scope,
)
from gpuprof.collectors.live.nvml.gpm import open_gpm
from gpuprof.collectors.live.nvml.library import (
    close_library,
    means_lost,
    open_library,
    text,
    visible_handles,
)
from gpuprof.collectors.live.nvml.readings import (
    RANGES,
    Reading,
    in_mig_mode,
    pcie_readings,
    plain_readings,
    plausible,
)
from gpuprof.collectors.live.periodic import PeriodicThread

# What this collector fills of the table `samples`.
COLUMNS: Final = tuple(RANGES)
# Rows of one device before every second one is dropped and the interval doubled.
_MAXIMUM_ROWS: Final = 20_000
_ROW: Final = ("time_ns", "device", *COLUMNS)
# Columns that nothing but GPM fills.
_ACTIVITY: Final = (
    *("sm_active_percent", "tensor_active_percent", "dram_active_percent"),
    *("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"),
    *("window_start_ns", "window_end_ns"),
)


def find_nvml() -> Availability:
    """Whether NVML answers on this machine, and which driver is behind it."""
    library, why_not = open_library()
    if library is None:
        remedy = "needs an NVIDIA driver on this machine (in a container: --gpus all)"
        return Availability(available=False, finding=why_not, remedy=remedy)
    try:
        finding = f"driver {text(library.nvmlSystemGetDriverVersion())}"
    except Exception as error:
        finding = f"a driver of unknown version ({reason(error)})"
    finally:
        close_library(library)
    return Availability(available=True, finding=finding)


def make_sampler(scope: Scope) -> "NvmlSampler":
    """The sampler of a recording."""
    return NvmlSampler(
        scope.device_indices,
        rank=scope.rank,
        interval_ns=scope.interval_ns,
        on_sample=scope.on_sample,
    )


class NvmlSampler:
    """Samples NVML from a daemon thread between `start` and `stop`: a `LiveCollector`.

    `device_indices` are CUDA device numbers; None means all that are visible. Times are Unix
    epoch nanoseconds. Memory is bounded: a long run is sampled ever more rarely. A process
    forked from this one has no sampler; its `stop` returns no rows.
    """

    def __init__(
        self,
        device_indices: Sequence[int] | None = None,
        *,
        rank: int = 0,
        interval_ns: int = DEFAULT_INTERVAL_NS,
        on_sample: Callable[[Sequence[LatestReading]], None] = lambda readings: None,
        library: Any = None,
    ) -> None:
        self.notes: list[Note] = []
        self._on_sample = on_sample
        self._device_indices = device_indices
        self._rank = rank
        self._library = library
        self._devices: list[_SampledDevice] = []
        self._thread = PeriodicThread(
            self._sample_all, name="gpuprof-nvml", interval_ns=interval_ns
        )

    def start(self) -> None:
        """Take the first sample now and go on in the background."""
        self._library, why_not = open_library(self._library)
        if self._library is None:
            self.notes.append(Note(f"NVML not available, so no GPU state was sampled: {why_not}"))
            return
        try:
            self._devices = self._open_devices()
        except Exception as error:
            self.notes.append(Note(f"no GPU state was sampled: {reason(error)}"))
        else:
            if not self._devices and not self.notes:
                self.notes.append(Note("no GPU state was sampled: NVML sees no GPU for CUDA"))
        if not self._devices:
            close_library(self._library)
            return
        self._sample_all()
        self._thread.start()

    def slow_down(self) -> None:
        """From now on sample once a second: the part of the run that matters is over."""
        self._thread.slow_down()

    def stop(self) -> Collected:
        """End the thread and return all rows, as the table `samples`."""
        if not self._thread.running:
            return {}
        if self._thread.stop():
            self._sample_all()
            for device in self._devices:
                device.close()
            close_library(self._library)
        if self._thread.problem:
            self.notes.append(Note(f"NVML {self._thread.problem}"))
        rows = [row for device in self._devices for row in list(device.rows)]
        # The first two of a row are never None.
        rows.sort(key=lambda row: (row[0] or 0, row[1] or 0))
        columns = {name: [row[index] for row in rows] for index, name in enumerate(_ROW)}
        return {"samples": {"rank": [self._rank] * len(rows), **columns}}

    def _open_devices(self) -> "list[_SampledDevice]":
        handles = visible_handles(self._library)
        wanted = handles if self._device_indices is None else self._device_indices
        devices = []
        for index in wanted:
            if index not in handles:
                continue
            if handles[index] is None:
                self.notes.append(Note(f"device {index}: NVML does not open it", device=index))
                continue
            devices.append(_SampledDevice(self._library, index, handles[index], self.notes))
        return devices

    def _sample_all(self) -> None:
        for device in self._devices:
            device.sample()
            if len(device.rows) > _MAXIMUM_ROWS:
                del device.rows[1::2]
                self._thread.interval_ns *= 2
        self._on_sample([device.last for device in self._devices])


class _DeviceLostError(Exception):
    """The device is gone: no call about it will succeed again."""


class _SampledDevice:
    """The readings of one device; `notes` are shared with the sampler."""

    def __init__(self, library: Any, index: int, handle: Any, notes: list[Note]) -> None:
        self.rows: list[tuple[float | None, ...]] = []
        self.last = LatestReading(index)
        self._library = library
        self._index = index
        self._handle = handle
        self._notes = notes
        self._lost = False
        self._implausible: set[str] = set()
        self._readings = plain_readings(library, handle)
        if in_mig_mode(library, handle):
            # Some drivers answer 0 instead of refusing.
            self._drop("utilisation_percent", "MIG is on, and NVML has none of its slices")
        self._gpm = open_gpm(library, handle)
        if self._gpm is None:
            self._note(
                "no tensor and DRAM activity (GPM needs Hopper or later, not MIG)", *_ACTIVITY
            )
            self._readings += pcie_readings(library, handle)

    def sample(self) -> None:
        """Append one row, unless the device is lost."""
        if self._lost:
            return
        values: dict[str, Any] = {"time_ns": time.time_ns(), "device": self._index}
        try:
            for reading in list(self._readings):
                values[reading.column] = self._read(reading)
            values |= self._read_gpm()
        except _DeviceLostError as error:
            self._lost = True
            self.last = LatestReading(self._index)
            self._note(f"sampling stopped ({error})")
            return
        self.rows.append(tuple(values.get(column) for column in _ROW))
        self.last = LatestReading(
            self._index, values.get("sm_clock_mhz"), values.get("power_milliwatts")
        )

    def close(self) -> None:
        """Free what the driver holds for this device."""
        if self._gpm is not None:
            self._gpm.close()
            self._gpm = None

    def _read(self, reading: Reading) -> float | None:
        try:
            value = reading.read()
        except Exception as error:
            self._stop_if_lost(error)
            self._drop(reading.column, reason(error))
            return None
        return self._checked(reading.column, value)

    def _read_gpm(self) -> dict[str, float | None]:
        if self._gpm is None:
            return {}
        try:
            rates = self._gpm.read()
        except Exception as error:
            self._stop_if_lost(error)
            self._note(f"GPM stopped ({reason(error)})", *_ACTIVITY)
            self.close()
            self._readings += pcie_readings(self._library, self._handle)
            return {}
        # What the driver itself calls unknown needs no note.
        return {
            column: None if rate is None else self._checked(column, rate)
            for column, rate in rates.items()
        }

    def _checked(self, column: str, value: Any) -> float | None:
        """`value`; None, noted once, for what its column cannot hold."""
        if plausible(value, column):
            return value
        if column not in self._implausible:
            self._implausible.add(column)
            self._note(f"{column} from NVML is out of range ({_shown(value)})", column)
        return None

    def _drop(self, column: str, why: str) -> None:
        self._readings = [reading for reading in self._readings if reading.column != column]
        self._note(f"no {column} from NVML ({why})", column)

    def _note(self, sentence: str, *columns: str) -> None:
        self._notes.append(Note(f"device {self._index}: {sentence}", columns, self._index))

    @staticmethod
    def _stop_if_lost(error: Exception) -> None:
        if means_lost(error):
            raise _DeviceLostError(reason(error)) from error


def _shown(value: object) -> str:
    """`value` for a note. Its own text may be endless, or fail."""
    try:
        return f"{value!r:.40}"
    except Exception:
        return type(value).__name__
