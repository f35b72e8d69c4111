"""GPU state while the program runs: clocks, power, temperature and traffic, sampled from NVML.

A call that a device or driver does not support disables that one field of that device, and is
noted once. Where there is no NVML at all, the sampler does nothing and says so.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from gpuprof.collectors import schema
from gpuprof.collectors.live.nvml.gpm import open_gpm

DEFAULT_INTERVAL_NS: Final = 100_000_000
SLOW_INTERVAL_NS: Final = 1_000_000_000
# Rows of one device before every second one is dropped and the interval doubled.
_MAXIMUM_ROWS: Final = 20_000
_JOIN_SECONDS: Final = 5.0

# Bits of the clocks-event reasons that mean a slow-down, with NVML's names in words.
SLOWDOWN_REASONS: Final[Mapping[int, str]] = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


def slowdown_reasons(bits: int) -> tuple[str, ...]:
    """The names of the slow-downs in one value of `samples.throttle_reasons`."""
    return tuple(name for bit, name in SLOWDOWN_REASONS.items() if bits & bit)


def open_library() -> tuple[Any, str]:
    """Import and initialise pynvml. Returns it, or None with the reason.

    Each successful call must be followed by one `nvmlShutdown`.
    """
    try:
        import pynvml
    except (ImportError, SyntaxError) as error:  # nvidia-ml-py3, also `pynvml`, is Python 2
        return None, f"pynvml cannot be imported ({error}): pip install nvidia-ml-py"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, f"NVML does not start: {error}"
    return pynvml, ""


def find_handle(library: Any, uuid: str) -> Any:
    """The NVML handle of a device by UUID, with or without its "GPU-" or "MIG-" prefix."""
    bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
    try:
        return library.nvmlDeviceGetHandleByUUID(f"GPU-{bare}")
    except library.NVMLError:
        return library.nvmlDeviceGetHandleByUUID(f"MIG-{bare}")


def visible_uuids(library: Any, environment: Mapping[str, str] = os.environ) -> dict[int, str]:
    """CUDA device index -> NVML UUID, following CUDA_VISIBLE_DEVICES, without starting CUDA.

    Raises `ValueError` where the order cannot be known: CUDA numbers unlike GPUs by speed
    unless CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    handles = [
        library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount())
    ]
    all_uuids = [text(library.nvmlDeviceGetUUID(handle)) for handle in handles]
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    entries = None if visible is None else [entry.strip() for entry in visible.split(",")]
    by_number = entries is None or any(entry.isdigit() for entry in entries)
    names = {text(library.nvmlDeviceGetName(handle)) for handle in handles}
    if by_number and len(names) > 1 and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        raise ValueError("GPUs of several kinds: set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    if entries is None:
        return dict(enumerate(all_uuids))
    chosen: dict[int, str] = {}
    for entry in entries:
        if entry.isdigit() and int(entry) < len(all_uuids):
            uuid = all_uuids[int(entry)]
        elif entry.startswith("MIG-"):
            uuid = entry
        elif entry and not entry.isdigit():
            uuid = next((u for u in all_uuids if u.startswith(entry)), "")
        else:
            uuid = ""
        # CUDA ignores everything from the first invalid entry on.
        if not uuid:
            break
        chosen[len(chosen)] = uuid
    return chosen


def text(value: str | bytes) -> str:
    """A name from NVML, which older packages give as bytes."""
    return value.decode() if isinstance(value, bytes) else value


class NvmlSampler:
    """Samples NVML from a daemon thread between `start` and `stop`.

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
        library: Any = None,
    ) -> None:
        self.notes: list[str] = []
        self._device_indices = device_indices
        self._rank = rank
        self._interval_ns = interval_ns
        self._library = library
        self._devices: list[_SampledDevice] = []
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._process: int | None = None

    def start(self) -> None:
        """Take the first sample now and go on in the background."""
        self._process = os.getpid()
        self._devices = self._open_devices()
        if not self._devices:
            if self._library is not None:
                self._library.nvmlShutdown()
            return
        self._sample_all()
        self._thread = threading.Thread(target=self._run, name="gpuprof-nvml", daemon=True)
        self._thread.start()

    def slow_down(self) -> None:
        """From now on sample once a second: the part of the run that matters is over."""
        self._interval_ns = max(self._interval_ns, SLOW_INTERVAL_NS)

    def stop(self) -> pl.DataFrame:
        """End the thread and return all rows, as the table `samples`."""
        # The child of a fork has no thread, and the event's lock may have been held then.
        if self._process != os.getpid() or self._thread is None:
            return schema.empty("samples")
        self._stopping.set()
        self._thread.join(_JOIN_SECONDS)
        if self._thread.is_alive():
            self.notes.append(f"NVML did not answer within {_JOIN_SECONDS:.0f} s at the end")
        else:
            self._sample_all()
            for device in self._devices:
                device.close()
            self._library.nvmlShutdown()
        self._thread = None
        rows = [row for device in self._devices for row in list(device.rows)]
        frame = pl.DataFrame(rows, schema={n: schema.SAMPLES[n] for n in _COLUMNS}, orient="row")
        frame = frame.with_columns(pl.lit(self._rank, pl.Int32).alias("rank"))
        return schema.conform("samples", frame).sort("time_ns", "device")

    def _open_devices(self) -> "list[_SampledDevice]":
        if self._library is None:
            self._library, reason = open_library()
            if self._library is None:
                self.notes.append(f"no GPU state was sampled: {reason}")
                return []
        else:
            self._library.nvmlInit()
        try:
            uuids = visible_uuids(self._library)
            wanted = uuids if self._device_indices is None else self._device_indices
            return [
                _SampledDevice(
                    self._library, index, find_handle(self._library, uuids[index]), self.notes
                )
                for index in wanted
                if index in uuids
            ]
        except (self._library.NVMLError, ValueError) as error:
            self.notes.append(f"no GPU state was sampled: {error}")
            return []

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_ns / 1e9):
            self._sample_all()

    def _sample_all(self) -> None:
        for device in self._devices:
            device.sample()
            if len(device.rows) > _MAXIMUM_ROWS:
                del device.rows[1::2]
                self._interval_ns *= 2


# Columns that a sample fills, in the order of its tuple.
_COLUMNS: Final = tuple(name for name in schema.SAMPLES if name != "rank")
_INTEGER_COLUMNS: Final = frozenset(
    name for name, dtype in schema.SAMPLES.items() if dtype.is_integer()
)


@dataclass(frozen=True)
class _Field:
    """One NVML reading of one device."""

    column: str
    read: Callable[[], float]


class _SampledDevice:
    """The readings of one device; `notes` are shared with the sampler."""

    def __init__(self, library: Any, index: int, handle: Any, notes: list[str]) -> None:
        self.rows: list[tuple[float | None, ...]] = []
        self._library = library
        self._index = index
        self._notes = notes
        self._gpm = open_gpm(library, handle)
        if self._gpm is None:
            notes.append(
                f"device {index}: no tensor and DRAM activity (GPM needs Hopper or later, not MIG)"
            )
        self._fields = _fields(library, handle, with_pcie=self._gpm is None)

    def sample(self) -> None:
        """Append one row."""
        values: dict[str, float | None] = {"time_ns": time.time_ns(), "device": self._index}
        for field in list(self._fields):
            values[field.column] = self._read(field)
        if self._gpm is not None:
            try:
                values |= self._gpm.read()
            except self._library.NVMLError as error:
                self._notes.append(f"device {self._index}: GPM stopped ({error})")
                self._gpm = None
        self.rows.append(tuple(_typed(column, values.get(column)) for column in _COLUMNS))

    def close(self) -> None:
        """Free what the driver holds for this device."""
        if self._gpm is not None:
            self._gpm.close()

    def _read(self, field: _Field) -> float | None:
        try:
            return field.read()
        except (self._library.NVMLError, AttributeError) as error:
            self._notes.append(f"device {self._index}: no {field.column} from NVML ({error})")
            self._fields.remove(field)
            return None


def _typed(column: str, value: float | None) -> float | None:
    return round(value) if value is not None and column in _INTEGER_COLUMNS else value


def _fields(library: Any, handle: Any, *, with_pcie: bool) -> list[_Field]:
    """The plain readings. Names that an old pynvml lacks fail at the first read, like the rest."""
    lib = library

    def event_reasons() -> int:
        # Renamed in driver 535; the old name remains for older packages.
        name = "nvmlDeviceGetCurrentClocksEventReasons"
        read = getattr(lib, name, None) or lib.nvmlDeviceGetCurrentClocksThrottleReasons
        return int(read(handle))

    fields = [
        _Field("sm_clock_mhz", lambda: lib.nvmlDeviceGetClockInfo(handle, lib.NVML_CLOCK_SM)),
        _Field("memory_clock_mhz", lambda: lib.nvmlDeviceGetClockInfo(handle, lib.NVML_CLOCK_MEM)),
        _Field("power_milliwatts", lambda: lib.nvmlDeviceGetPowerUsage(handle)),
        _Field(
            "temperature_celsius",
            lambda: lib.nvmlDeviceGetTemperature(handle, lib.NVML_TEMPERATURE_GPU),
        ),
        _Field("throttle_reasons", event_reasons),
        _Field("utilisation_percent", lambda: lib.nvmlDeviceGetUtilizationRates(handle).gpu),
        _Field("memory_used_bytes", lambda: lib.nvmlDeviceGetMemoryInfo(handle).used),
    ]
    if with_pcie:
        # These two block for about 20 ms each; GPM has the same figures for free.
        fields += [
            _Field(column, _pcie_reader(lib, handle, counter))
            for column, counter in (
                ("pcie_tx_bytes_per_s", "NVML_PCIE_UTIL_TX_BYTES"),
                ("pcie_rx_bytes_per_s", "NVML_PCIE_UTIL_RX_BYTES"),
            )
        ]
    return fields


def _pcie_reader(library: Any, handle: Any, counter: str) -> Callable[[], float]:
    # NVML gives KB/s.
    return lambda: library.nvmlDeviceGetPcieThroughput(handle, getattr(library, counter)) * 1000
