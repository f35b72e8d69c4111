"""Which launch of a trace a launch that Nsight Compute profiled is.

The two runs are of one program, so they launch the same kernels in the same order, but a report
usually holds a window of them, of some names. Tools also spell one kernel's name differently.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, TypeAlias

import polars as pl

_BRACKETS: Final = {"<": ">", "(": ")", "[": "]", "{": "}"}
_SHORTEST_RUN: Final = 3
_UNNAMED: Final = ("(anonymous namespace)", "<unnamed>")

# Name, grid and block of a launch.
_Kind: TypeAlias = tuple[str, str | None, str | None]


def match_launches(trace: pl.DataFrame, report: pl.DataFrame) -> pl.DataFrame:
    """Columns trace_row, report_row and certain, one row a profiled launch that was found.

    Both frames are those of `launch_keys`. `certain` is false where a report holds only some of the
    launches of a kind and nothing tells which: they then count as the first.
    """
    matches: list[tuple[int, int, bool]] = []
    for rank in report["rank"].unique(maintain_order=True):
        ours = trace.filter(pl.col("rank") == rank)
        theirs = report.filter(pl.col("rank") == rank)
        trace_codes, report_codes = _codes(_kinds(ours), _kinds(theirs))
        matches += [
            (ours["row"][mine], theirs["row"][other], certain)
            for mine, other, certain in _align(trace_codes, report_codes)
        ]
    return matched(matches, trace)


def matched(matches: Sequence[tuple[int, int, bool]], trace: pl.DataFrame) -> pl.DataFrame:
    """The frame of `match_launches`, of rows of the trace, rows of the report and certainty."""
    return pl.DataFrame(
        matches,
        schema={"trace_row": pl.UInt32, "report_row": pl.UInt32, "certain": pl.Boolean},
        orient="row",
    ).with_columns(pl.col("trace_row", "report_row").cast(trace.schema["row"]))


def base_name(name: str) -> str:
    """A kernel's name without return type, namespaces, template arguments and parameters.

    "void at::native::(anonymous namespace)::reduce<512, Op<float>>(T3)" is "reduce".
    """
    for unnamed in _UNNAMED:
        name = name.replace(unnamed, "")
    kept: list[str] = []
    closing: list[str] = []
    for character in name:
        if closing:
            if character == closing[-1]:
                closing.pop()
            elif character in _BRACKETS:
                closing.append(_BRACKETS[character])
        elif character in _BRACKETS:
            if character == "(" and kept:
                break
            closing.append(_BRACKETS[character])
        else:
            kept.append(character)
    words = "".join(kept).split()
    return words[-1].rsplit("::", 1)[-1] if words else name


def _kinds(keys: pl.DataFrame) -> list[_Kind]:
    return list(keys.select("kernel", "grid", "block").iter_rows())


def _codes(trace: list[_Kind], report: list[_Kind]) -> tuple[list[int], list[int]]:
    """Numbers that are equal where launches are of one kind; -1 for trace launches of no kind.

    A profiled kind stands for the trace's kind of the same name, else for those of the same base
    name, and where the report does not say the grid or block, of any.
    """
    unclaimed = dict.fromkeys(trace)
    codes: dict[_Kind, int] = {}
    wanted = list(dict.fromkeys(report))
    for kind in wanted:
        if kind in unclaimed:
            codes[kind] = len(codes)
            del unclaimed[kind]
    claimed: dict[_Kind, int] = dict(codes)
    by_shape = _by(unclaimed, lambda kind: (base_name(kind[0]), kind[1], kind[2]))
    by_name = _by(unclaimed, lambda kind: base_name(kind[0]))
    groups: dict[Hashable, int] = {}
    for kind in wanted:
        if kind in codes:
            continue
        base = base_name(kind[0])
        known = kind[1] is not None and kind[2] is not None
        group: Hashable = (base, kind[1], kind[2]) if known else base
        codes[kind] = groups.setdefault(group, len(codes))
        for same in by_shape[group] if known else by_name[group]:
            claimed.setdefault(same, codes[kind])
    return [claimed.get(kind, -1) for kind in trace], [codes[kind] for kind in report]


def _by(
    kinds: dict[_Kind, None], group: Callable[[_Kind], Hashable]
) -> dict[Hashable, list[_Kind]]:
    grouped: dict[Hashable, list[_Kind]] = defaultdict(list)
    for kind in kinds:
        grouped[group(kind)].append(kind)
    return grouped


def _align(trace: Sequence[int], report: Sequence[int]) -> list[tuple[int, int, bool]]:
    """Pairs of positions, and whether they are certain."""
    # A report filtered by name skips launches that it has no kind of.
    positions = [index for index, code in enumerate(trace) if code >= 0]
    text = _text(trace[index] for index in positions)
    known = set(text)
    wanted = [index for index, code in enumerate(report) if chr(code) in known]
    runs = _runs(text, _text(report[index] for index in wanted))
    pairs = [
        (positions[ours + step], wanted[theirs + step])
        for ours, theirs, length in runs
        for step in range(length)
    ]
    matched, used = {other for _, other in pairs}, {mine for mine, _ in pairs}
    launches: dict[int, list[int]] = defaultdict(list)
    for index in positions:
        if index not in used:
            launches[trace[index]].append(index)
    profiled: dict[int, list[int]] = defaultdict(list)
    for index, code in enumerate(report):
        if index not in matched:
            profiled[code].append(index)
    return [(mine, other, True) for mine, other in pairs] + [
        (mine, other, len(launches[code]) == len(theirs))
        for code, theirs in profiled.items()
        for mine, other in zip(launches[code], theirs, strict=False)
    ]


def _runs(trace: str, report: str) -> list[tuple[int, int, int]]:
    """Runs of `report` that occur in `trace` in this order: (start there, start here, length).

    The whole, where it occurs; else each as long as it can be, of at least three launches and two
    kinds, since less occurs by chance.
    """
    whole = trace.find(report)
    if whole >= 0:
        return [(whole, 0, len(report))]
    runs = []
    start, place = 0, 0
    while start < len(report):
        found, length = _longest_run(trace, report, start, place)
        if length >= _SHORTEST_RUN and len(set(report[start : start + length])) > 1:
            runs.append((found, start, length))
            place = found + length
            start += length
        else:
            start += 1
    return runs


def _longest_run(trace: str, report: str, start: int, place: int) -> tuple[int, int]:
    """Where in `trace`, from `place` on, the longest run of `report` from `start` occurs."""
    low, high = 0, len(report) - start
    while low < high:
        middle = (low + high + 1) // 2
        if trace.find(report[start : start + middle], place) >= 0:
            low = middle
        else:
            high = middle - 1
    return trace.find(report[start : start + low], place), low


def _text(codes: Iterable[int]) -> str:
    # Finding a sequence in another is what str.find does fast.
    return "".join(map(chr, codes))
