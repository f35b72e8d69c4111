"""How long the host is in what keeps a device waiting, also while the device still has work."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import Integers
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.classes import (
    ALLOCATOR,
    BLOCKING_COPY,
    DATA_LOADER,
    GARBAGE_COLLECTION,
    SYNCHRONISATION,
    ClassName,
)
from gpuprof.roofline.host.windows import Windows, step_windows, union_within_ns
from gpuprof.roofline.idle.pieces import IdlePieces
from gpuprof.roofline.work.names import launch_names

# Calls that take the host's time, and those in which it waits for the device.
_WORKING: Final = (ALLOCATOR, BLOCKING_COPY)
_WAITING: Final = (SYNCHRONISATION, BLOCKING_COPY)
# Of the table of steps: what was counted in timed ones, and its class.
_COUNTED: Final[Mapping[str, ClassName]] = {
    "garbage_collection_ns": GARBAGE_COLLECTION,
    "loader_ns": DATA_LOADER,
}


@dataclass(frozen=True)
class HostTime:
    """The time of the host in one step, in ns."""

    # In a profiled step: of the threads that launch work, each moment in one class.
    by_class: Mapping[ClassName, float] = field(default_factory=dict)
    # In the median timed step, of what was counted there.
    counted: Mapping[ClassName, int] = field(default_factory=dict)
    # Classes of the calls of a profiled step in which the host waits for its device.
    waits: frozenset[ClassName] = frozenset()


def host_time(capture: Capture, idle: IdlePieces, *, on_cpu: bool) -> HostTime:
    """Of an attributed one-rank capture, whose time without device work is in `idle`."""
    windows = step_windows(capture)
    if windows is None:
        return HostTime()
    steps = int((capture.steps["phase"] == "profiled").sum())
    names = launch_names(capture)
    calls = capture.launches.select(
        *("thread", "start_ns", "end_ns"),
        kind=idle.calls,
        launches=pl.Series(
            names.where(names.texts.str.contains("Launch", literal=True).to_numpy())
        ),
    ).drop_nulls("end_ns")
    launching = calls.filter("launches")["thread"].drop_nulls().unique().to_list()
    # A thread that loads ahead makes no launch later.
    scopes = idle.timeline.scopes.filter(pl.col("thread").is_in(launching) | on_cpu)
    # What else there is has no class.
    own = calls.drop_nulls("kind").filter(pl.col("thread").is_in(launching))
    by_class: dict[ClassName, float] = {
        kind: _spent_ns(windows, scopes.filter(pl.col("kind") == kind)) / steps
        for kind in scopes["kind"].unique()
    }
    collecting = pl.DataFrame(
        dict(zip(("start_ns", "end_ns"), idle.timeline.collecting, strict=True))
    )
    for kind, spans in (
        (GARBAGE_COLLECTION, collecting),
        *((kind, own.filter(pl.col("kind") == kind)) for kind in _WORKING),
    ):
        beside_ns = _beside_ns(windows, spans, scopes)
        if beside_ns:
            by_class[kind] = by_class.get(kind, 0.0) + beside_ns / steps
    collected_ns = _spent_ns(windows, collecting)
    outside = _beside_ns(windows, collecting, scopes) / collected_ns if collected_ns else 1.0
    return HostTime(by_class, _counted(capture, outside), _waits(own, windows))


def _spent_ns(windows: Windows, *spans: pl.DataFrame) -> int:
    """Nanoseconds of the windows that any of `spans` covers."""
    edges = [
        np.concatenate([_edge(each, name) for each in spans]) for name in ("start_ns", "end_ns")
    ]
    return union_within_ns(windows, *edges)


def _edge(spans: pl.DataFrame, name: str) -> Integers:
    return spans.drop_nulls("end_ns")[name].to_numpy()


def _beside_ns(windows: Windows, spans: pl.DataFrame, scopes: pl.DataFrame) -> int:
    """Of `spans`, what lies in none of `scopes`: all that is done in one is of its class."""
    return _spent_ns(windows, spans, scopes) - _spent_ns(windows, scopes)


def _counted(capture: Capture, collected_outside: float) -> dict[ClassName, int]:
    """By how much what was counted in timed steps makes the median one longer.

    A mean would have what a median step has not, where steps differ. `collected_outside`: the share
    of collections that lie in no scope, whose class would have them.
    """
    timed = capture.steps.filter(pl.col("phase") == "timed")
    found: dict[ClassName, int] = {}
    for column, kind in _COUNTED.items():
        steps = timed.select("host_ns", column).drop_nulls()
        if steps.is_empty() or steps.height < timed.height:
            continue
        share = collected_outside if kind == GARBAGE_COLLECTION else 1.0
        host_ns = steps["host_ns"].to_numpy()
        rest_ns = host_ns - share * steps[column].to_numpy()
        found[kind] = max(0, round(float(np.median(host_ns) - np.median(rest_ns))))
    return found


def _waits(calls: pl.DataFrame, windows: Windows) -> frozenset[ClassName]:
    """Classes of those of `calls` that wait for the device in the windows."""
    inside = calls.filter(
        (pl.col("end_ns") > windows[0].min())
        & (pl.col("start_ns") < windows[1].max())
        & pl.col("kind").is_in(_WAITING)
    )
    return frozenset(inside["kind"].unique())
