"""Whole stacks of Python frames, each once: its caller's stack, a function and the line in it."""

from collections.abc import Callable
from types import CodeType
from typing import Final

from gpuprof.collectors.stacks import frame_text

# The number of the stack without frames.
NO_STACK: Final = 0


class CallStacks:
    """Stacks by number, in the order in which they were first seen."""

    def __init__(self) -> None:
        # By the caller's stack, the id of the function's code, and the line.
        self._numbers: dict[tuple[int, int, int | None], int] = {}
        # Of each stack the caller's and the frame. Codes are kept alive, so ids stay theirs.
        self._frames: list[tuple[int, CodeType, int | None]] = []

    def below(self, caller: int, code: CodeType, line: int | None) -> int:
        """The stack of `code` at `line`, called from the stack `caller`. A tracer calls it."""
        key = (caller, id(code), line)
        number = self._numbers.get(key)
        if number is None:
            self._frames.append((caller, code, line))
            number = self._numbers[key] = len(self._frames)
        return number

    def texts(self, file_of: Callable[[CodeType], str]) -> list[str | None]:
        """Each stack as `gpuprof.collectors.stacks` has it; None for that without frames.

        `file_of` tells how people know the file of a function.
        """
        found: list[str | None] = [None]
        for caller, code, line in self._frames:
            frame = frame_text(file_of(code), line, getattr(code, "co_qualname", code.co_name))
            outer = found[caller]
            found.append(frame if outer is None else f"{frame}\n{outer}")
        return found
