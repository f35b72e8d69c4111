"""The line of a program that a stack of Python frames comes from."""

import re
from typing import Final

# Frames of installed packages and of torch itself, which are not what a person would change.
_LIBRARY: Final = re.compile(r"(?:^|[/\\])(?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d|^<")


def user_line(stack: str) -> str:
    """The innermost frame of `stack` outside libraries, else the innermost of all; "" without any.

    `stack` is as the table `allocations` has it: lines "file:line function", innermost first.
    """
    frames = [line for line in stack.split("\n") if line]
    own = (frame for frame in frames if not _LIBRARY.search(frame))
    return next(own, frames[0] if frames else "")
