"""The rows of metrics.toml."""

from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

RequestLatency = Literal["ttft", "tpot", "itl", "e2el"]


class LatencySample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A figure of the requests of a run: a quantile of one of their quantities."""

    quantity: RequestLatency
    quantile: float


class ReportedMetric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One metric that other tools report; metrics.toml says what the fields are."""

    name: str
    unit: str
    better: Literal["lower", "higher"]
    judged: bool = False
    scale: float = 1.0
    keys: dict[str, str]
    sample: LatencySample | None = None


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a tool's file tells beside its figures."""

    title: str
    source: str
    model: str
    settings: tuple[str, ...]
    remarks: tuple[str, ...]
    # Patterns of settings that may differ, and of what a run measured.
    ignored: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    metric: tuple[ReportedMetric, ...]
    tool: dict[str, Tool]


@cache
def _table() -> _Table:
    text = files("gpuprof.collectors.benchmark_results").joinpath("metrics.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table)


def reported_metrics() -> tuple[ReportedMetric, ...]:
    """All metrics, in their order."""
    return _table().metric


def tool(name: str) -> Tool:
    """The tool whose table is called `name`."""
    return _table().tool[name]
