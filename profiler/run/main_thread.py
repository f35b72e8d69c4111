"""Calls a function on the main thread, from any other and without a signal.

The interpreter makes the call between two instructions of whatever the main thread runs. While
that is in C, it has to wait.
"""

import ctypes
import threading
from collections.abc import Callable
from typing import Any

_CALL: Any = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
# The interpreter keeps a bare pointer, so that each must live on. They are few.
_calls: list[Any] = []


def call_on_main_thread(function: Callable[[], None]) -> bool:
    """Ask for a call of `function`; False where no more calls can wait.

    What it raises is raised in the program that the main thread runs.
    """

    def call(_: object) -> int:
        try:
            function()
        except BaseException as error:
            _raise_again(error)
        return 0

    pointer = _CALL(call)
    _calls.append(pointer)
    return bool(ctypes.pythonapi.Py_AddPendingCall(pointer, None) == 0)


def _raise_again(error: BaseException) -> None:
    """The interpreter would only print what a call raises, and takes a class to raise later."""
    kind = type(error)

    def make(cls: type[BaseException]) -> BaseException:
        return kind.__new__(cls, *error.args)

    def initialise(self: BaseException) -> None:
        self.__dict__.update(error.__dict__)

    names = {"__new__": make, "__init__": initialise, "__module__": kind.__module__}
    again = type(kind.__name__, (kind,), names)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(threading.get_ident()), ctypes.py_object(again)
    )
