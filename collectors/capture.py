"""Capture: what happened, as typed tables. The only thing that collectors hand on."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import polars as pl

from gpuprof.collectors import schema
from gpuprof.collectors.manifest import Manifest, ProcessInfo

_Arguments = ParamSpec("_Arguments")
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Capture:
    """The tables of `gpuprof.collectors.schema`, with what the capture says about itself.

    One `ProcessInfo` a rank, in the order of `manifest.ranks`. Tables hold the rows of all ranks.
    """

    manifest: Manifest
    processes: tuple[ProcessInfo, ...]
    kernels: pl.DataFrame = field(default_factory=partial(schema.empty, "kernels"))
    ops: pl.DataFrame = field(default_factory=partial(schema.empty, "ops"))
    launches: pl.DataFrame = field(default_factory=partial(schema.empty, "launches"))
    ranges: pl.DataFrame = field(default_factory=partial(schema.empty, "ranges"))
    positions: pl.DataFrame = field(default_factory=partial(schema.empty, "positions"))
    steps: pl.DataFrame = field(default_factory=partial(schema.empty, "steps"))
    samples: pl.DataFrame = field(default_factory=partial(schema.empty, "samples"))
    counters: pl.DataFrame = field(default_factory=partial(schema.empty, "counters"))
    allocations: pl.DataFrame = field(default_factory=partial(schema.empty, "allocations"))
    memory_blocks: pl.DataFrame = field(default_factory=partial(schema.empty, "memory_blocks"))
    out_of_memory: pl.DataFrame = field(default_factory=partial(schema.empty, "out_of_memory"))
    graph_nodes: pl.DataFrame = field(default_factory=partial(schema.empty, "graph_nodes"))
    collective_records: pl.DataFrame = field(
        default_factory=partial(schema.empty, "collective_records")
    )
    # What `once_a_capture` keeps, by function and arguments.
    _found: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, expected in schema.TABLES.items():
            actual = self.table(name).schema
            if actual != expected:
                differing = sorted(set(actual.items()) ^ set(expected.items()), key=str)
                raise ValueError(f"table {name} does not have its schema: {differing}")

    def table(self, name: str) -> pl.DataFrame:
        """The table called `name`, one of `gpuprof.collectors.schema.TABLES`."""
        frame = getattr(self, name)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def tables(self) -> dict[str, pl.DataFrame]:
        """All tables by name."""
        return {f.name: self.table(f.name) for f in fields(self) if f.name in schema.TABLES}

    def with_processes(self, processes: tuple[ProcessInfo, ...]) -> "Capture":
        """This capture with other process facts."""
        return replace(self, processes=processes)

    def rank(self, rank: int) -> "Capture":
        """The part of this capture that belongs to one rank."""
        chosen = tuple(p for p in self.processes if p.rank == rank)
        if not chosen:
            raise ValueError(f"no rank {rank}; this capture has {list(self.manifest.ranks)}")
        if len(self.processes) == 1:
            return self
        return Capture(
            self.manifest,
            chosen,
            **{name: frame.filter(pl.col("rank") == rank) for name, frame in self.tables().items()},
        )


def once_a_capture(
    function: Callable[Concatenate[Capture, _Arguments], _Found],
) -> Callable[Concatenate[Capture, _Arguments], _Found]:
    """`function`, which several parts of an analysis ask, computed once for the same capture.

    Its other arguments are hashable, and its result is not changed by who gets it.
    """

    @wraps(function)
    def once(capture: Capture, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Found:
        found = capture._found
        key = (function, args, tuple(kwargs.items()))
        if key not in found:
            found[key] = function(capture, *args, **kwargs)
        result: _Found = found[key]
        return result

    return once
