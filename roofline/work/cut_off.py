"""A last step that the recording did not see whole.

A profiler that is stopped within a step closes its annotation there. What the step launched until
then is no step's work.
"""

from typing import Final

import polars as pl

# A step with less than this share of the pieces of device work that each earlier one has, is cut;
# where those all have as many as each other, one with less than nearly all.
_SHARE: Final = 0.5
_NEARLY_ALL: Final = 0.98
# So many earlier steps show that steps have as many pieces as each other.
_ENOUGH: Final = 2


def cut_off_step(steps: pl.DataFrame, kernels: pl.DataFrame) -> tuple[int, str] | None:
    """The index of the last profiled step where it is cut off, and a sentence that says so.

    `steps` and `kernels`, with their steps, are of one rank.
    """
    profiled = steps.filter(pl.col("phase") == "profiled").sort("start_ns")
    if profiled.height < 2:
        return None
    pieces = dict(kernels.drop_nulls("step").group_by("step").len().iter_rows())
    *earlier, last = profiled["index"].to_list()
    numbers = [pieces.get(step, 0) for step in earlier]
    fewest = min(numbers)
    alike = len(numbers) >= _ENOUGH and fewest == max(numbers)
    if pieces.get(last, 0) >= (_NEARLY_ALL if alike else _SHARE) * fewest:
        return None
    return last, (
        f"the last of {profiled.height} profiled steps (number {last}) is cut off: it has "
        f"{pieces.get(last, 0)} pieces of device work, each other one {fewest} or more; it is left "
        "out"
    )
