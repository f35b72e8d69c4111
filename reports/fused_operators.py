"""What kernels that torch.compile generated are made of, in words."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Fact
from gpuprof.reports.figures import line_text, source_text
from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.module_figures import FusedOperator, SourceLine

# A kernel may be made of hundreds.
_MOST_SHOWN: Final = 12


def fused_names(fused: Sequence[FusedOperator]) -> tuple[str, ...]:
    """The operators in their order, each once."""
    return tuple(dict.fromkeys(each.name for each in fused))


def lines_text(source: SourceLine | None, fused: Sequence[FusedOperator]) -> str:
    """ "train.py:42 and 2 other lines": the first line that a kernel comes from, and how many."""
    line = line_text(source)
    others = {line_text(each.source) for each in fused} - {"", line}
    return f"{line} and {formatting.counted(len(others), 'other line')}" if others else line


def fused_facts(point: RooflinePoint) -> Iterator[Fact]:
    """A fact for each operator, with its place as the note; none for what is made of itself."""
    fused = point.fused
    if len(fused) == 1 and fused[0].name == point.name:
        return
    label = "Made of"
    for each in fused[:_MOST_SHOWN]:
        place = formatting.joined((source_text(each.source), each.module))
        yield Fact(label, formatting.printable(each.name), formatting.printable(place))
        label = ""
    further = len(fused) - _MOST_SHOWN
    if further > 0:
        yield Fact("", f"and {formatting.counted(further, 'other operator')}")
