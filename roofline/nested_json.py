"""JSON texts of a capture that nest deeper than what they should hold.

A decoder takes some of its thread's stack for each level, and the limit that Python 3.13 has of it
is one for larger stacks than those of the threads that analyse
(`gpuprof.collectors.query_thread`).
"""

from typing import Final

# Lists of tensors' shapes have three levels.
_MOST_LEVELS: Final = 100


def nests_too_deep(text: str) -> bool:
    """Whether `text` has more levels of lists and objects than any that is meant to be read.

    Brackets within strings count too.
    """
    if text.count("[") + text.count("{") <= _MOST_LEVELS:
        return False
    level = 0
    for character in text:
        if character in "[{":
            level += 1
            if level > _MOST_LEVELS:
                return True
        elif character in "]}":
            level -= 1
    return False
