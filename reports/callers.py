"""Lines of Python that lead to some work, as labelled values."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Fact, Facts
from gpuprof.roofline.explanation_figures import Caller

_MOST_SHOWN: Final = 24
_INTO: Final = " > "
# Stands for the frames that a row shares with the one it branches from.
_SHARED: Final = "\u2026 > "


def caller_facts(callers: Sequence[Caller]) -> Iterator[Facts]:
    """The tree, a row for each stretch of frames without a branch; nothing where none is known."""
    rows = list(_rows(callers, 0))
    if not rows:
        return
    facts = rows[:_MOST_SHOWN]
    further = len(rows) - _MOST_SHOWN
    if further > 0:
        facts.append(Fact("", f"and {formatting.counted(further, 'other row')}"))
    yield Facts(tuple(facts), "Lines that lead to it")


def _rows(callers: Sequence[Caller], depth: int) -> Iterator[Fact]:
    for caller in callers:
        frames = [caller.frame]
        while len(caller.called) == 1 and caller.called[0].fraction == caller.fraction:
            (caller,) = caller.called
            frames.append(caller.frame)
        value = _SHARED * depth + _INTO.join(frames)
        yield Fact(formatting.percent(caller.fraction), formatting.printable(value))
        yield from _rows(caller.called, depth + 1)
