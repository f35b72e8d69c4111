"""Which operator or kernel a name means: the rows of an analysis that match it."""

import difflib
import re
from typing import Final

from gpuprof.roofline.analysis import Analysis, RooflinePoint

_MOST_SUGGESTIONS: Final = 5
_NEAR: Final = 0.6
# Of names such as _flash_attention_forward.
_WORD: Final = re.compile(r"[A-Za-z]{3,}")


def matches(analysis: Analysis, name: str) -> tuple[RooflinePoint, ...]:
    """Operators and kernels called `name`, else those whose names contain it, in any case.

    Operators come before kernels of the same name, which are what they launched; each is sorted by
    device time.
    """
    wanted = name.casefold()
    for equal in (
        lambda point: point.name == name,
        lambda point: own_name(point.name).casefold() == wanted,
        lambda point: wanted in point.name.casefold(),
    ):
        found = [point for point in analysis.ops if equal(point)]
        names = {point.name for point in found}
        found += [point for point in analysis.kernels if equal(point) and point.name not in names]
        if found:
            return tuple(found)
    return ()


def is_called(name: str, wanted: str) -> bool:
    """Whether `wanted` is a whole name, with its namespace or without."""
    return wanted == name or wanted.casefold() == own_name(name).casefold()


def near_names(analysis: Analysis, name: str) -> tuple[str, ...]:
    """Names of the analysis, or words in them, that are spelled like `name`, the nearest first."""
    own = {own_name(point.name) for point in (*analysis.ops, *analysis.kernels)}
    words = {word for each in own for word in _WORD.findall(each)}
    spelled = {each.casefold(): each for each in (*words, *own)}
    close = difflib.get_close_matches(name.casefold(), spelled, n=_MOST_SUGGESTIONS, cutoff=_NEAR)
    return tuple(spelled[each] for each in close)


def own_name(name: str) -> str:
    """A name without its namespace, template arguments and parameters: "mm" of "aten::mm"."""
    head = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return head.partition("<")[0].partition("(")[0].rpartition("::")[2] or name
