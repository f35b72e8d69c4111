"""The table of counters, metrics.toml: what each tells, and which GPUs have it."""

from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import Final

import msgspec

STALL_METRIC: Final = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
# How metrics of a GPU's tensor units begin: which source types they count differs from GPU to GPU.
TENSOR_METRICS: Final = "sm__ops_path_tensor_src_"


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first and last compute capability that has it; None where the newest do."""

    since: str
    until: str | None = None

    def exists_on(self, capability: str | None) -> bool:
        """Whether a GPU of this compute capability has it; of an unknown one, whether all do."""
        if capability is None:
            return self.until is None and _number(self.since) <= _number(_OLDEST_SUPPORTED)
        at = _number(capability)
        return _number(self.since) <= at and (self.until is None or at <= _number(self.until))


# By Nsight Compute of today.
_OLDEST_SUPPORTED: Final = "7.5"


class _Sourced(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    source: str
    # Cards of which a recording has it; "" where there is none.
    seen: str
    # Whether `gpuprof run --counters` asks for it.
    collect: bool = False


class LevelCounter(_Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A counter of the traffic of a level of memory; its peak is its own, at `clock`."""

    level: str
    counter: str
    bytes_per_count: int
    clock: str


class VectorKind(_Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many operations an instruction of the vector units is."""

    precision: str
    operations: dict[str, int]


class VectorPeak(_Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The instruction whose peak is that of its precision on the vector units."""

    precision: str
    counter: str
    operations: int


class TensorSources(_Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Source types in the names of counters of the tensor units, and their precisions."""

    precisions: dict[str, str]


class CounterMetric(_Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A metric with its submetric, and what it is called for people."""

    metric: str
    name: str
    # Whether it says much by itself, as `gpuprof explain` lists it.
    shown: bool = False


class Stall(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a warp waits for. The metric is `STALL_METRIC` with the reason."""

    reason: str
    # Continues "warps wait for".
    meaning: str

    @property
    def metric(self) -> str:
        """As Nsight Compute calls it."""
        return STALL_METRIC.format(self.reason)


class Architecture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPUs of some compute capabilities, and the cards of them that were seen."""

    name: str
    capabilities: tuple[str, ...]
    chip: str
    seen: str


class MetricTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """metrics.toml."""

    architecture: tuple[Architecture, ...]
    level: tuple[LevelCounter, ...]
    vector: tuple[VectorKind, ...]
    vector_peak: tuple[VectorPeak, ...]
    tensor: TensorSources
    metric: tuple[CounterMetric, ...]
    stall: tuple[Stall, ...]


@lru_cache(maxsize=1)
def metric_table() -> MetricTable:
    """The table, in the order in which its rows are taken and shown."""
    text = files("gpuprof.roofline.measured").joinpath("metrics.toml").read_bytes()
    return msgspec.toml.decode(text, type=MetricTable)


def metrics_to_collect(capability: str | None) -> tuple[str, ...]:
    """What `ncu --metrics` is given on a GPU of this compute capability.

    Where that is unknown, what all architectures have that Nsight Compute supports today.
    """
    return tuple(dict.fromkeys(_to_collect(metric_table(), capability)))


def _to_collect(table: MetricTable, capability: str | None) -> Iterator[str]:
    if table.tensor.exists_on(capability):
        yield f"regex:^{TENSOR_METRICS}"
    for kind in table.vector:
        if kind.collect and kind.exists_on(capability):
            # ncu finds no instruction counters by regular expression.
            yield from (
                f"smsp__sass_thread_inst_executed_op_{instruction}_pred_on.sum"
                for instruction in kind.operations
            )
    for level in table.level:
        if level.collect and level.exists_on(capability):
            yield f"{level.counter}.sum"
    for metric in table.metric:
        if metric.collect and metric.exists_on(capability):
            yield metric.metric
    for stall in table.stall:
        if stall.exists_on(capability):
            yield stall.metric


def _number(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split("."))
