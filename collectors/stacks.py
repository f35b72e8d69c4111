"""Stacks of Python frames as captures hold them: lines "file:line function", innermost first."""

import re
from collections.abc import Iterable
from typing import Final

# Files of installed packages, of Python itself and of gpuprof, wherever that is installed from:
# they are not what a person would change.
_LIBRARY: Final = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d|^<"
    r"|[/\\]gpuprof[/\\](?:collectors|profiler)[/\\]"
)
# Frames that a stack keeps: where memory was allocated, and what of the program led there.
_MOST_FRAMES: Final = 20
_LONGEST_NAME: Final = 300


def shortened(frames: Iterable[str]) -> str:
    """The innermost of `frames` and those of the program's own files, each on a line."""
    kept: list[str] = []
    for frame in frames:
        if not kept or not _LIBRARY.search(frame):
            kept.append(frame[:_LONGEST_NAME])
            if len(kept) == _MOST_FRAMES:
                break
    return "\n".join(kept)


def user_line(stack: str) -> str:
    """The innermost frame of `stack` outside libraries, else the innermost; "" without any."""
    frames = [line for line in stack.split("\n") if line]
    own = (frame for frame in frames if not _LIBRARY.search(frame))
    return next(own, frames[0] if frames else "")
