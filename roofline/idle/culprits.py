"""What the host did while the device had no work, named and added up."""

from collections.abc import Callable
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.place_text import place_text
from gpuprof.roofline.classes import (
    GARBAGE_COLLECTION,
    HOST_WORK,
    LAUNCH,
    OUTSIDE,
    QUEUED,
    UNEXPLAINED,
    ClassName,
)
from gpuprof.roofline.host.events import loader_waits
from gpuprof.roofline.idle.host_events_text import described
from gpuprof.roofline.idle.host_timeline import HostTimeline, innermost_rows, within
from gpuprof.roofline.idle.host_work import written_as
from gpuprof.roofline.idle.pieces import IdlePieces
from gpuprof.roofline.idle_figures import IdlePart
from gpuprof.roofline.numbered_names import alike_together
from gpuprof.roofline.steps.waiting import Waiting

# From one kernel to the next a device takes 1 to 3 us; what takes longer waits for something.
_NEXT_KERNEL_NS: Final = 5_000
# Before the name of a node of autograd's graph: torch/csrc/autograd/engine.cpp.
_BACKWARD: Final = "autograd::engine::evaluate_function: "
_KEY: Final = ("kind", "what", "call", "operator", "kernel", "place")


def waiting_by_class(pieces: pl.DataFrame, steps: int) -> dict[ClassName, Waiting]:
    """Time without device work of one profiled step by class."""
    sums = pieces.group_by("kind").agg(**_amounts(steps)).sort("kind")
    found = {
        row["kind"]: Waiting(row["keeps_ns"], row["shrinks_ns"])
        for row in sums.iter_rows(named=True)
    }
    return {kind: waiting for kind, waiting in found.items() if waiting.total_ns}


def usual_waiting_by_class(pieces: pl.DataFrame, steps: int) -> dict[ClassName, Waiting]:
    """The same of the median of the profiled steps; of an even number the lower one."""
    sums = pieces.group_by("kind", "step").agg(**_amounts(1))
    found: dict[ClassName, Waiting] = {}
    for (kind,), own in sums.group_by("kind"):
        # Steps without any have no row.
        below = steps - (steps + 1) // 2
        lengths = own.sort(pl.col("keeps_ns") + pl.col("shrinks_ns"), descending=True)
        if below < lengths.height:
            row = lengths.row(below, named=True)
            found[str(kind)] = Waiting(row["keeps_ns"], row["shrinks_ns"])
        else:
            found[str(kind)] = Waiting()
    return found


def parts_of_steps(pieces: pl.DataFrame, steps: int) -> tuple[tuple[IdlePart, ...], ...]:
    """The time without device work of each profiled step by class, the largest first."""
    sums = pieces.group_by("step", "kind").agg(pl.col("nanoseconds").sum())
    found: list[list[IdlePart]] = [[] for _ in range(steps)]
    for step, kind, nanoseconds in sums.sort(
        "nanoseconds", "kind", descending=[True, False]
    ).iter_rows():
        found[step].append(IdlePart(kind, nanoseconds))
    return tuple(map(tuple, found))


def _amounts(steps: int) -> dict[str, pl.Expr]:
    kinds = {"keeps_ns": pl.col("keeps"), "shrinks_ns": ~pl.col("keeps")}
    return {
        name: pl.col("nanoseconds").filter(is_it).sum() / steps for name, is_it in kinds.items()
    }


def culprits(named: pl.DataFrame, steps: int) -> pl.DataFrame:
    """One row for each thing that the host did in the `named_pieces`, by class and name.

    Columns kind, what, call, operator, kernel, place, detail, keeps_ns, shrinks_ns and calls;
    of one step.
    """
    return (
        named.group_by(*_KEY)
        .agg(
            detail=pl.col("detail").first(),
            calls=pl.col("event").n_unique() / steps,
            total=pl.col("nanoseconds").sum(),
            **_amounts(steps),
        )
        .sort("total", *_KEY, descending=[True, *(False for _ in _KEY)])
        .drop("total")
    )


def named_pieces(idle: IdlePieces, capture: Capture) -> pl.DataFrame:
    """The pieces in their order, with what the host did in each.

    Columns step, start_ns, nanoseconds, kind and keeps as of `IdlePieces`; what, call, operator,
    kernel, place and detail as of an `IdleCulprit`; event, the number of what they are a part of.
    """
    timeline, gaps = idle.timeline, idle.gaps
    pieces = idle.pieces
    op_names, texts = capture.ops["name"].fill_null(""), _Texts()
    ends = _at(pl.Series(gaps.kernel), pieces["gap"])
    scopes = described(timeline.scopes, loader_waits(capture))
    collected = within(timeline.collecting, pieces["time_ns"].fill_null(0).to_numpy())
    innermost = _at(op_names, pieces["op_row"])
    columns = pieces.with_columns(
        **{f"scope_{name}": _at(scopes[name], pieces["scope_row"]) for name in ("place", "detail")},
        scope_what=texts.numbers(_at(scopes["what"], pieces["scope_row"])),
        range_place=_at(_places_at_start(timeline, timeline.idle_ranges), pieces["range_row"]),
        asked_place=_at(_places_at_start(timeline, timeline.scopes), pieces["scope_row"]),
        place=_places(capture.ops, pieces["op_row"]).fill_null(
            _places(timeline.positions, pieces["position_row"])
        ),
        range=texts.numbers(_at(timeline.idle_ranges["name"], pieces["range_row"]), alike_together),
        inside=texts.numbers(_at(timeline.ranges["name"], pieces["around_row"]), _inside),
        call_name=texts.numbers(_at(capture.launches["name"], pieces["call_row"])),
        innermost=texts.numbers(innermost, _of_forward),
        outermost=texts.numbers(_at(op_names, pieces["root_row"]), _of_forward),
        written=texts.numbers(innermost, _written),
        until=texts.numbers(_at(op_names, _launching_rows(idle, ends)), _until),
        before=texts.numbers(_at(idle.kernels["name"], ends)),
        gap_ns=_at(pl.Series(gaps.end_ns - gaps.start_ns), pieces["gap"]),
        collection=pl.Series(collected),
    )
    kind = pl.col("kind")
    # Without operators nothing tells that it is Python.
    between = texts.number_of(
        "host code between calls" if capture.ops.is_empty() else "Python between operators"
    )
    launching = kind.is_in([LAUNCH, OUTSIDE])
    called = pl.col("call_name").is_not_null() & pl.col("scope_what").is_null()
    what = (
        pl.when(kind == QUEUED)
        .then(
            pl.when(pl.col("gap_ns") <= _NEXT_KERNEL_NS)
            .then(texts.number_of("from one kernel to the next"))
            .otherwise(texts.number_of("queued work that waits"))
        )
        .when(kind == UNEXPLAINED)
        .then(texts.number_of("nothing was recorded"))
        .when(kind == GARBAGE_COLLECTION)
        .then(texts.number_of("garbage collection"))
        .when(launching)
        .then(pl.coalesce("outermost", between))
        .when(kind == HOST_WORK)
        .then(pl.coalesce("range", "call_name", "innermost", between))
        .otherwise(pl.coalesce("scope_what", "written", "call_name", "innermost"))
    )
    outside_scopes = ~launching & ~kind.is_in([QUEUED, UNEXPLAINED, GARBAGE_COLLECTION, HOST_WORK])
    in_call = outside_scopes & called
    anonymous = (what == between) & (launching | (kind == HOST_WORK))
    event = (
        pl.when(kind == GARBAGE_COLLECTION)
        .then(pl.col("collection"))
        .when(kind.is_in([QUEUED, UNEXPLAINED]))
        .then(pl.col("gap"))
        .when(launching)
        .then(pl.coalesce("root_row", -1 - pl.col("hole")))
        .when(kind == HOST_WORK)
        .then(pl.coalesce("range_row", "call_row", "op_row", -1 - pl.col("hole")))
        .otherwise(pl.coalesce("scope_row", "call_row", "op_row"))
    )
    found = columns.select(
        "step",
        "start_ns",
        "kind",
        "nanoseconds",
        "keeps",
        what=what,
        call=pl.when(in_call).then("call_name"),
        operator=pl.when(in_call)
        .then("innermost")
        .when(anonymous)
        .then(pl.coalesce("inside", pl.when(kind == HOST_WORK).then("until"))),
        kernel=pl.when((kind == QUEUED) & (pl.col("gap_ns") > _NEXT_KERNEL_NS)).then("before"),
        # Of work that waits in a queue the host's place says nothing.
        place=pl.when(kind != QUEUED)
        .then(pl.coalesce("scope_place", "asked_place", "range_place", "place"))
        .fill_null(""),
        detail=pl.col("scope_detail").fill_null(""),
        event=event,
    )
    return found.with_columns(
        what=texts.of(found["what"]),
        **{name: texts.of(found[name]).fill_null("") for name in ("call", "operator", "kernel")},
    )


class _Texts:
    """Texts with a number each. Numbers are much quicker to choose from, row by row."""

    def __init__(self) -> None:
        self._texts: list[pl.Series] = []
        self._count = 0

    def numbers(
        self, found: pl.Series, spelled: Callable[[pl.Series], pl.Series] | None = None
    ) -> pl.Series:
        """The numbers of `found`, or of what `spelled` makes of its texts; null where that is."""
        names = found.drop_nulls().unique()
        texts = names if spelled is None else spelled(names)
        own = pl.Series(np.arange(len(texts)) + self._count, dtype=pl.Int64)
        own = own.set(texts.is_null(), None)
        self._texts.append(texts)
        self._count += len(texts)
        rows = found.cast(pl.Enum(names)).to_physical().cast(pl.Int64)
        return _at(own, rows)

    def number_of(self, text: str) -> pl.Expr:
        """The number of one more text."""
        self._texts.append(pl.Series([text]))
        self._count += 1
        return pl.lit(self._count - 1, pl.Int64)

    def of(self, numbers: pl.Series) -> pl.Series:
        """The texts of `numbers`, null where one is."""
        return _at(pl.concat(self._texts), numbers)


def _of_forward(names: pl.Series) -> pl.Series:
    """The names of operators without what autograd puts before those of its nodes."""
    return names.str.strip_prefix(_BACKWARD)


def _inside(names: pl.Series) -> pl.Series:
    return "in " + alike_together(names)


def _until(names: pl.Series) -> pl.Series:
    return "before " + _of_forward(names)


def _places(table: pl.DataFrame, rows: pl.Series) -> pl.Series:
    """ "train.py:42" for each of `rows` of operators or positions, as far as it is known."""
    if table["file"].null_count() == table.height:
        return pl.repeat(None, len(rows), dtype=pl.String, eager=True)
    found = pl.DataFrame([_at(table[name], rows) for name in ("file", "line", "function")])
    known = found.unique().drop_nulls("file")
    texts = [
        place_text(file, line) + (f", {function}" if line is None and function else "")
        for file, line, function in known.iter_rows()
    ]
    return found.join(
        known.with_columns(place=pl.Series(texts, dtype=pl.String)),
        on=("file", "line", "function"),
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )["place"]


def _places_at_start(timeline: HostTimeline, events: pl.DataFrame) -> pl.Series:
    """Where the program began each of `events`, which may go on elsewhere in it."""
    points = events.select("process", "thread", time_ns="start_ns")
    rows = pl.Series(innermost_rows(timeline.positions, points), dtype=pl.Int64)
    return _places(timeline.positions, rows)


def _written(op_names: pl.Series) -> pl.Series:
    """What a program writes for operators of these names; null where that is not known."""
    names = _of_forward(op_names)
    return pl.Series([written_as(name) for name in names], dtype=pl.String)


def _launching_rows(idle: IdlePieces, ends: pl.Series) -> pl.Series:
    """The outermost operator that launched the work at each of `ends`, rows of the kernels."""
    roots = pl.Series(idle.timeline.op_roots, dtype=pl.Int64)
    return _at(roots, _at(idle.launching_ops, ends))


def _at(values: pl.Series, rows: pl.Series) -> pl.Series:
    """`values` at `rows`; null where a row is null or negative."""
    if values.is_empty():
        return pl.repeat(None, len(rows), dtype=values.dtype, eager=True)
    missing = rows.is_null() | (rows < 0)
    return values.gather(rows.fill_null(0).clip(0)).set(missing, None)
