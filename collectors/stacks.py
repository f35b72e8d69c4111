"""Stacks of Python frames as captures hold them: lines "file:line function", innermost first.

Where only the function is known, a question mark stands for the line.
"""

import re
from collections.abc import Iterable
from typing import Final

# Files of installed packages, of Python itself and of gpuprof, wherever that is installed from:
# they are not what a person would change.
_LIBRARY: Final = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d|^<"
    r"|[/\\]gpuprof[/\\](?:collectors|profiler)[/\\]"
)
# Up to where a path leads to installed packages, or to Python's own library.
_INSTALLED: Final = re.compile(r"^.*/(?:site-packages|dist-packages|lib/python\d\.\d+)/")
_UNKNOWN_LINE: Final = "?"
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


def installed_name(path: str) -> str:
    """`path` without where packages, or Python itself, are installed: torch/nn/functional.py."""
    return _INSTALLED.sub("", path)


def frame_text(file: str, line: int | None, function: str) -> str:
    """A frame as a line of a stack."""
    number = _UNKNOWN_LINE if line is None else line
    return f"{file}:{number} {function}"


def put_below(outer: str, inner: str) -> str:
    """The stack of frames that `outer` called, which are `inner`.

    The outermost of `inner` may be in `outer` too, and others of a library below it there, which
    called the rest: `inner` tells more.
    """
    below = inner.split("\n")
    frames = outer.split("\n")
    for place, frame in enumerate(frames):
        if _function(frame) == _function(below[-1]):
            frames = frames[place + 1 :]
            break
    return "\n".join([*below, *frames])


def _function(frame: str) -> tuple[str, str]:
    """The file and the function of a frame, without the class, which Python 3.10 does not tell."""
    place, _, function = frame.partition(" ")
    return place.rpartition(":")[0], function.rpartition(".")[2]


def user_line(stack: str) -> str:
    """The innermost frame of `stack` outside libraries, else the innermost; "" without any."""
    frames = [line for line in stack.split("\n") if line]
    own = (frame for frame in frames if not _LIBRARY.search(frame))
    return next(own, frames[0] if frames else "")
