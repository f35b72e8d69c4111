"""The level from which torch's C++ code writes log lines to stderr."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch

# c10/util/Logging.cpp: a plain variable; torch offers no call that sets it after its import.
_VARIABLE: Final = "FLAGS_caffe2_log_level"
_LIBRARIES: Final = ("libc10.so", "libc10.dylib")
_ERROR: Final = 2


def errors_only() -> Callable[[], None] | None:
    """Let torch log errors alone; returns what sets the level back, None where it cannot be set."""
    level = _level()
    if level is None:
        return None
    before = level.value
    level.value = max(before, _ERROR)

    def restore() -> None:
        level.value = before

    return restore


def can_be_set() -> bool:
    """Whether this build of torch has the level where it is looked for."""
    return _level() is not None


def _level() -> ctypes.c_int | None:
    folder = Path(torch.__file__).parent / "lib"
    library = next((folder / name for name in _LIBRARIES if (folder / name).is_file()), None)
    if library is None:
        return None
    try:
        # torch has loaded it: this gives the same one.
        return ctypes.c_int.in_dll(ctypes.CDLL(str(library)), _VARIABLE)
    except (OSError, ValueError):
        return None
