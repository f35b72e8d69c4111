"""What a bench found: the structs behind its table, its JSON file and its capture.

Times are integer nanoseconds; unknown is None. Written as JSON and read back by type.
"""

import msgspec

from gpuprof.collectors.manifest import Calibration, Device, Fingerprint
from gpuprof.roofline.cost_models.cost import Flops

BENCH_SCHEMA_VERSION = 1
BENCH_FILE = "bench.json"


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """How the times were taken."""

    # "CUDA events" or "host clock"
    clock: str
    # Bytes written, then read, before each timed call, outside it; None: caches stay as they are.
    flushed_bytes: int | None
    # Sampling goes on until the interval of the median at this confidence reaches no further than
    # this share of the median to either side, or the seconds are spent.
    confidence: float
    precision: float
    budget_s: float
    seed: int


class Sustained(msgspec.Struct, frozen=True, kw_only=True):
    """Calls back to back at the clock that holds, the caches as the call before left them."""

    # The mean of `calls`.
    call_ns: int
    calls: int
    started_ns: int
    ended_ns: int
    sm_clock_mhz: int | None = None
    throttle_reasons: tuple[str, ...] = ()


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """One version on one problem. With `error` set nothing was timed, or it must not be used."""

    family: str
    version: str
    size: str
    dtype: str
    # By the problem's definition.
    flops: tuple[Flops, ...] = ()
    bytes_read: int = 0
    bytes_written: int = 0
    bus_bytes: int | None = None
    # What the version says it does, where that differs.
    executed_flops: tuple[Flops, ...] | None = None
    expected_bytes_read: int | None = None
    expected_bytes_written: int | None = None
    note: str = ""
    # ||out - reference|| / ||reference|| against float64, and what rounding explains.
    relative_error: float | None = None
    tolerance: float | None = None
    median_ns: int | None = None
    # The interval of the median.
    lower_ns: int | None = None
    upper_ns: int | None = None
    # The interquartile range over the median.
    relative_spread: float | None = None
    # False where the budget ran out before the interval was narrow enough.
    precise: bool = False
    # One for each timed call; of several ranks the slowest one's.
    samples_ns: tuple[int, ...] = ()
    # What the host needed to start each call, where the device's clock timed it; over the device's
    # time, the host sets the pace, unless the device was held before the call.
    host_samples_ns: tuple[int, ...] = ()
    head_start_ns: int = 0
    started_ns: int | None = None
    ended_ns: int | None = None
    sm_clock_mhz: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    # None on a CPU, of several ranks, and where the host sets the pace.
    sustained: Sustained | None = None
    error: str | None = None

    @property
    def label(self) -> str:
        """ "gemm/cublas 4096x4096x4096 bf16", as the roofline names the point."""
        return f"{self.family}/{self.version} {self.size} {self.dtype}"

    @property
    def done_flops(self) -> tuple[Flops, ...]:
        """What the device executed, as far as the version says."""
        return self.flops if self.executed_flops is None else self.executed_flops

    @property
    def bytes_moved(self) -> int:
        """Compulsory bytes."""
        return self.bytes_read + self.bytes_written

    @property
    def host_bound(self) -> bool:
        """Whether the device may have waited for the host inside the timed calls."""
        if self.median_ns is None or not self.host_samples_ns:
            return False
        middle = sorted(self.host_samples_ns)[len(self.host_samples_ns) // 2]
        return middle > self.median_ns + self.head_start_ns


class Skipped(msgspec.Struct, frozen=True):
    """A version that has nothing for a problem or this machine, and why."""

    label: str
    size: str
    dtype: str
    reason: str


class BenchReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole bench, as its JSON file holds it."""

    schema_version: int = BENCH_SCHEMA_VERSION
    tool_version: str
    created_ns: int
    command: tuple[str, ...] = ()
    device: Device | None
    fingerprint: Fingerprint
    calibration: Calibration | None = None
    ranks: int = 1
    method: Method
    cases: tuple[CaseResult, ...]
    skipped: tuple[Skipped, ...] = ()
    warnings: tuple[str, ...] = ()
