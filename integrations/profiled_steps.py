"""A profile of a training from a chosen step on, for the callbacks of trainers."""

from pathlib import Path
from typing import Any

import gpuprof


class ProfiledSteps:
    """Opens a `gpuprof.profile` before one step, marks each step's end, and closes it.

    `options` are those of `gpuprof.profile`. Nothing is recorded before `first_step`, a number of
    optimizer steps. Inside `gpuprof run` only the marks are set.
    """

    def __init__(self, output: str | Path | None, first_step: int, **options: Any) -> None:
        if first_step < 0:
            raise gpuprof.CommandError(f"first_step is {first_step}; give 0 or more")
        self.profile = gpuprof.profile(output, **options)
        self._first_step = first_step
        self._entered = False
        self._left = False

    def begin(self, step: int) -> None:
        """`step` optimizer steps are done, and the next begins."""
        if not self._entered and step >= self._first_step:
            self._entered = True
            self.profile.__enter__()

    def end(self) -> None:
        """An optimizer step has ended."""
        gpuprof.step()

    def close(self, error: BaseException | None = None) -> None:
        """The training has ended, by `error` if one is given; the capture is stored."""
        if self._entered and not self._left:
            self._left = True
            self.profile.__exit__(None if error is None else type(error), error, None)
