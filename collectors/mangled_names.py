"""Mangled C++ names as a person would write them, by the C++ library of this machine."""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_void_p
from functools import cache
from typing import Any


@cache
def demangled(name: str) -> str:
    """A mangled C++ name as a person would write it, and any other as it is, as Kineto does.

    Where the machine has no C++ library of GNU, a mangled name stays one.
    """
    library = _library() if name.startswith("_Z") else None
    if library is None:
        return name
    status = c_int()
    text = library.__cxa_demangle(name.encode(errors="replace"), None, None, byref(status))
    if not text:
        return name
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        library.free(text)


@cache
def _library() -> Any:
    try:
        library: Any = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    library.__cxa_demangle.restype = c_void_p
    library.__cxa_demangle.argtypes = (c_char_p, c_void_p, c_void_p, POINTER(c_int))
    library.free.argtypes = (c_void_p,)
    return library
