"""What the host did while the device had no work, named and added up."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import NONE, Integers
from gpuprof.collectors.call_tree.op_subtrees import Booleans
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
from gpuprof.roofline.work.names import (
    NumberedNames,
    launch_names,
    numbered,
    op_names,
    values_at,
)

# From one kernel to the next a device takes 1 to 3 us; what takes longer waits for something.
_NEXT_KERNEL_NS: Final = 5_000
# Before the name of a node of autograd's graph: torch/csrc/autograd/engine.cpp.
_BACKWARD: Final = "autograd::engine::evaluate_function: "
# Columns of the pieces that tell what each is: numbers, and rows of tables.
_ROWS: Final = (
    *("gap", "time_ns", "hole", "call_row", "op_row", "root_row"),
    *("scope_row", "range_row", "around_row", "position_row"),
)
_KEY: Final = ("kind", "what", "call", "operator", "kernel", "place")


@dataclass(frozen=True)
class ClassTime:
    """Nanoseconds without device work of one class in one profiled step."""

    step: int
    kind: ClassName
    keeps_ns: int
    shrinks_ns: int

    @property
    def total_ns(self) -> int:
        """Whether or not they are as many without the profiler."""
        return self.keeps_ns + self.shrinks_ns


def times_of_classes(pieces: pl.DataFrame) -> tuple[ClassTime, ...]:
    """Of each profiled step and class that has any, in their order."""
    # As numbers: to group by texts takes their memory once more.
    coded = pieces.select("step", pl.col("kind").cast(pl.Categorical), "keeps", "nanoseconds")
    sums = (
        coded.group_by("step", "kind", "keeps")
        .agg(pl.col("nanoseconds").sum())
        .with_columns(pl.col("kind").cast(pl.String))
    )
    found: dict[tuple[int, ClassName], dict[bool, int]] = {}
    for step, kind, keeps, nanoseconds in sums.iter_rows():
        found.setdefault((step, kind), {})[keeps] = nanoseconds
    return tuple(
        ClassTime(step, kind, keeps_ns=own.get(True, 0), shrinks_ns=own.get(False, 0))
        for (step, kind), own in sorted(found.items())
    )


def waiting_by_class(times: Iterable[ClassTime], steps: int) -> dict[ClassName, Waiting]:
    """Time without device work of one profiled step by class."""
    found = {
        kind: Waiting(
            sum(time.keeps_ns for time in own) / steps, sum(time.shrinks_ns for time in own) / steps
        )
        for kind, own in _by_class(times).items()
    }
    return {kind: waiting for kind, waiting in found.items() if waiting.total_ns}


def usual_waiting_by_class(times: Iterable[ClassTime], steps: int) -> dict[ClassName, Waiting]:
    """The same of the median of the profiled steps; of an even number the lower one."""
    # Steps without any have no row.
    below = steps - (steps + 1) // 2
    found: dict[ClassName, Waiting] = {}
    for kind, own in _by_class(times).items():
        longest = sorted(own, key=lambda time: -time.total_ns)
        found[kind] = Waiting()
        if below < len(longest):
            usual = longest[below]
            found[kind] = Waiting(float(usual.keeps_ns), float(usual.shrinks_ns))
    return found


def _by_class(times: Iterable[ClassTime]) -> dict[ClassName, list[ClassTime]]:
    found: dict[ClassName, list[ClassTime]] = {}
    for time in times:
        found.setdefault(time.kind, []).append(time)
    return dict(sorted(found.items()))


def parts_of_steps(times: Iterable[ClassTime], steps: int) -> tuple[tuple[IdlePart, ...], ...]:
    """The time without device work of each profiled step by class, the largest first."""
    found: list[list[IdlePart]] = [[] for _ in range(steps)]
    for time in sorted(times, key=lambda time: (-time.total_ns, time.kind)):
        found[time.step].append(IdlePart(time.kind, time.total_ns))
    return tuple(map(tuple, found))


def _amounts(steps: int) -> dict[str, pl.Expr]:
    kinds = {"keeps_ns": pl.col("keeps"), "shrinks_ns": ~pl.col("keeps")}
    return {
        name: pl.col("nanoseconds").filter(is_it).sum() / steps for name, is_it in kinds.items()
    }


def culprits(named: pl.DataFrame, steps: int) -> pl.DataFrame:
    """One row for each thing that the host did in the `named_pieces`, by class and name.

    Columns kind, what, call, operator, kernel, place, detail, keeps_ns, shrinks_ns and calls, of
    one step; and mergeable, the share of its time that is until a mergeable collective begins.
    """
    return (
        named.group_by(*_KEY)
        .agg(
            detail=pl.col("detail").first(),
            calls=pl.col("event").n_unique() / steps,
            total=pl.col("nanoseconds").sum(),
            mergeable=pl.col("nanoseconds").filter("mergeable").sum() / pl.col("nanoseconds").sum(),
            **_amounts(steps),
        )
        .with_columns(pl.col(pl.Enum).cast(pl.String))
        .sort("total", *_KEY, descending=[True, *(False for _ in _KEY)])
        .drop("total")
    )


def named_pieces(idle: IdlePieces, capture: Capture) -> pl.DataFrame:
    """The pieces in their order, with what the host did in each.

    Columns step, start_ns, nanoseconds, kind and keeps as of `IdlePieces`; what, call, operator,
    kernel, place and detail as of an `IdleCulprit`, of one dtype Enum; event, the number of what
    they are a part of; mergeable, whether it is time for a launch in a gap that a collective ends
    which one message with the call before could replace (`gpuprof.roofline.work.call_runs`).
    """
    timeline, gaps, pieces = idle.timeline, idle.gaps, idle.pieces
    texts = _Texts()
    gap, time_ns, hole, call_row, op_row, root_row, scope_row, range_row, around_row, position = (
        _numbers(pieces[name]) for name in _ROWS
    )
    ends = gaps.kernel[gap]
    ops, calls = op_names(capture), launch_names(capture)
    scopes = described(timeline.scopes, loader_waits(capture))
    scope = {name: texts.numbers(numbered(scopes[name]).at(scope_row)) for name in scopes.columns}
    around = texts.numbers(numbered(timeline.ranges["name"]).at(around_row), _inside)
    call = texts.numbers(calls.at(call_row))
    innermost = ops.at(op_row)
    operator = texts.numbers(innermost, _of_forward)
    until = texts.numbers(ops.at(_launching_rows(idle, ends)), _until)
    kind = pieces["kind"]
    queued, unexplained, collecting, working, launches, outside = (
        (kind == one).to_numpy()
        for one in (QUEUED, UNEXPLAINED, GARBAGE_COLLECTION, HOST_WORK, LAUNCH, OUTSIDE)
    )
    launching = launches | outside
    # Without operators nothing tells that it is Python.
    between = texts.number_of(
        "host code between calls" if capture.ops.is_empty() else "Python between operators"
    )
    waits = (gaps.end_ns - gaps.start_ns)[gap] > _NEXT_KERNEL_NS
    what = np.select(
        [queued & ~waits, queued, unexplained, collecting, launching, working],
        [
            texts.number_of("from one kernel to the next"),
            texts.number_of("queued work that waits"),
            texts.number_of("nothing was recorded"),
            texts.number_of("garbage collection"),
            _first(texts.numbers(ops.at(root_row), _of_forward), between),
            _first(
                texts.numbers(numbered(timeline.idle_ranges["name"]).at(range_row), alike_together),
                call,
                operator,
                between,
            ),
        ],
        _first(scope["what"], texts.numbers(innermost, _written), call, operator),
    )
    otherwise = ~(queued | unexplained | collecting | launching | working)
    in_call = otherwise & (call != NONE) & (scope["what"] == NONE)
    anonymous = (what == between) & (launching | working)
    own = _first(scope_row, call_row, op_row)
    event = np.select(
        [collecting, queued | unexplained, launching, working],
        [
            within(timeline.collecting, time_ns),
            gap,
            _first(root_row, -1 - hole),
            _first(range_row, call_row, op_row, -1 - hole),
        ],
        own,
    )
    place = _first(
        scope["place"],
        texts.numbers(_places_at_start(timeline, timeline.scopes).at(scope_row)),
        texts.numbers(_places_at_start(timeline, timeline.idle_ranges).at(range_row)),
        texts.numbers(_places(capture.ops, op_row)),
        texts.numbers(_places(timeline.positions, position)),
    )
    waiting = np.where(queued & waits, ends, NONE)
    in_operator = np.where(in_call, operator, NONE)
    beside = np.where(anonymous, _first(around, np.where(working, until, NONE)), NONE)
    nothing = texts.number_of("")
    said = {
        "call": np.where(in_call, call, NONE),
        "operator": _first(in_operator, beside),
        "kernel": texts.numbers(_names_at(idle.kernels["name"], waiting)),
        # Of work that waits in a queue the host's place says nothing.
        "place": np.where(queued, NONE, place),
        "detail": scope["detail"],
    }
    table = texts.table()
    return pieces.select(
        *("step", "start_ns", "kind", "nanoseconds", "keeps"),
        what=table.gather(np.where(what == NONE, len(table) - 1, what)),
        **{name: table.gather(_first(numbers, nothing)) for name, numbers in said.items()},
        event=pl.Series(event).set(pl.Series(otherwise & (own == NONE)), None),
        mergeable=pl.Series(launches & _at_ends(idle.kernels["mergeable"], ends)),
    )


def _numbers(rows: pl.Series) -> Integers:
    """`rows`, -1 where one is null."""
    known: Integers = (rows.fill_null(NONE) if rows.null_count() else rows).to_numpy()
    return known


def _first(*numbers: Integers | int) -> Integers:
    """Of each row the first of `numbers` that is not -1."""
    *first, found = numbers
    for each in reversed(first):
        found = np.where(each != NONE, each, found)
    return np.asarray(found)


class _Texts:
    """Texts with a number each. Numbers are much quicker to choose from, row by row."""

    def __init__(self) -> None:
        self._texts: list[pl.Series] = []
        self._count = 0

    def numbers(
        self, names: NumberedNames, spelled: Callable[[pl.Series], pl.Series] | None = None
    ) -> Integers:
        """The numbers of `names`, or of what `spelled` makes of their texts; -1 where none is."""
        texts = names.texts if spelled is None else spelled(names.texts)
        own = np.where(texts.is_null().to_numpy(), NONE, np.arange(len(texts)) + self._count)
        self._texts.append(texts)
        self._count += len(texts)
        return values_at(own, names.numbers)

    def number_of(self, text: str) -> int:
        """The number of one more text."""
        self._texts.append(pl.Series([text]))
        self._count += 1
        return self._count - 1

    def table(self) -> pl.Series:
        """All texts in the order of their numbers, and none for the number -1.

        As numbers again: a text of each piece would take as much memory as all that it is of.
        """
        texts = pl.concat([*self._texts, pl.Series([None], dtype=pl.String)])
        numbered_texts: pl.Series = texts.cast(
            pl.Enum(texts.drop_nulls().unique(maintain_order=True))
        )
        return numbered_texts


def _of_forward(names: pl.Series) -> pl.Series:
    """The names of operators without what autograd puts before those of its nodes."""
    return names.str.strip_prefix(_BACKWARD)


def _inside(names: pl.Series) -> pl.Series:
    return "in " + alike_together(names)


def _until(names: pl.Series) -> pl.Series:
    return "before " + _of_forward(names)


def _places(table: pl.DataFrame, rows: Integers) -> NumberedNames:
    """ "train.py:42" for each of `rows` of operators or positions, as far as it is known."""
    if table["file"].null_count() == table.height:
        return NumberedNames(pl.Series(dtype=pl.String), np.full(len(rows), NONE, np.int64))
    asked, row = _distinct(rows, table.height)
    places = table.select("file", "line", "function")[asked]
    known = places.unique().drop_nulls("file")
    texts = [
        place_text(file, line) + (f", {function}" if line is None and function else "")
        for file, line, function in known.iter_rows()
    ]
    named = places.join(
        known.with_columns(place=pl.Series(texts, dtype=pl.String)),
        on=("file", "line", "function"),
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    return numbered(named["place"]).at(row)


def _names_at(names: pl.Series, rows: Integers) -> NumberedNames:
    """Those of `names` that are at `rows`, few of them."""
    asked, row = _distinct(rows, len(names))
    return numbered(names.gather(asked)).at(row)


def _distinct(rows: Integers, height: int) -> tuple[Integers, Integers]:
    """The rows that there are, in order, and for each of `rows` its number among them or -1."""
    found = np.zeros(height + 1, np.bool_)
    found[rows] = True
    found[height] = False
    place = np.where(found, np.cumsum(found) - 1, NONE)
    return np.flatnonzero(found), place[rows]


def _places_at_start(timeline: HostTimeline, events: pl.DataFrame) -> NumberedNames:
    """Where the program began each of `events`, which may go on elsewhere in it."""
    points = events.select("process", "thread", time_ns="start_ns")
    return _places(timeline.positions, innermost_rows(timeline.positions, points))


def _written(op_names: pl.Series) -> pl.Series:
    """What a program writes for operators of these names; null where that is not known."""
    names = _of_forward(op_names)
    return pl.Series([written_as(name) for name in names], dtype=pl.String)


def _at_ends(marks: pl.Series, ends: Integers) -> Booleans:
    """Those of `marks`, one of each kernel, that are at `ends`; False where no kernel is."""
    return np.append(marks.to_numpy(), False)[ends]


def _launching_rows(idle: IdlePieces, ends: Integers) -> Integers:
    """The outermost operator that launched the work at each of `ends`, rows of the kernels."""
    return values_at(idle.timeline.op_roots, values_at(idle.launching_ops, ends))
