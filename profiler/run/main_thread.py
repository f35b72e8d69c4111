"""Calls a function on the main thread, from any other and without a signal.

The interpreter makes the call between two instructions of whatever the main thread runs. While
that is in C, it has to wait.
"""

import ctypes
import os
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

# It has this long to come out of C and answer: asleep all the while, or at work, as it is while it
# waits for a processor on a busy machine.
_PATIENCE_S = 1.0
_PATIENCE_AT_WORK_S = 6.0
_LOOK_S = 0.02

_CALL: Any = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
# The interpreter keeps a bare pointer, so that each must live on. They are few.
_calls: list[Any] = []
# Packages of torch that Python calls, and that call Python.
_OF_PYTHON = ("nn/modules/", "nn/parallel/", "optim/", "utils/data/", "distributed/fsdp/")


def call_on_main_thread(function: Callable[[], None]) -> bool:
    """Ask for a call of `function`; False where no more calls can wait.

    What it raises is raised in the program that the main thread runs.
    """

    def call(_: object) -> int:
        try:
            function()
        except BaseException as error:
            start_new_thread(_raise_after, (call.__code__, threading.get_ident(), error))
        return 0

    pointer = _CALL(call)
    _calls.append(pointer)
    return bool(ctypes.pythonapi.Py_AddPendingCall(pointer, None) == 0)


def main_thread_answers(answered: threading.Event) -> bool:
    """Wait for `answered`, which the main thread sets; False where it has had its time."""
    begin_s = at_work_s = time.monotonic()
    while not answered.wait(_LOOK_S):
        now_s = time.monotonic()
        if not is_main_thread_asleep():
            at_work_s = now_s
        if now_s - at_work_s > _PATIENCE_S or now_s - begin_s > _PATIENCE_AT_WORK_S:
            return False
    return True


def is_main_thread_asleep() -> bool:
    """Whether the main thread waits for something other than a processor or a disk.

    True where the system does not tell. See proc(5), /proc/pid/stat.
    """
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/stat").read_text(errors="replace")
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] not in ("R", "D")


def is_called_by_torch(frame: FrameType | None) -> bool:
    """Whether code of torch called what runs in `frame`: an operator, a compiler, autograd.

    Modules, optimizers and loaders count as the program's: Python calls them, and they Python.
    """
    module = sys.modules.get("torch")
    if module is None or module.__file__ is None:
        return False
    torch = str(Path(module.__file__).parent) + os.sep
    of_python = tuple(torch + folder.replace("/", os.sep) for folder in _OF_PYTHON)
    while frame is not None:
        file = frame.f_code.co_filename
        of_torch = file.startswith(torch) and not file.startswith(of_python)
        if of_torch or frame.f_code.co_name == "__torch_dispatch__":
            return True
        frame = frame.f_back
    return False


def _raise_after(call: CodeType, thread: int, error: BaseException) -> None:
    """Raise `error` in `thread` once it has left `call`: there it would only be printed."""
    while _is_in(call, sys._current_frames().get(thread)):
        time.sleep(0.001)
    kind = type(error)

    def make(cls: type[BaseException]) -> BaseException:
        return kind.__new__(cls, *error.args)

    def initialise(self: BaseException) -> None:
        self.__dict__.update(error.__dict__)

    # The interpreter takes a class, from which it makes the exception.
    names = {"__new__": make, "__init__": initialise, "__module__": kind.__module__}
    again = type(kind.__name__, (kind,), names)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(again))


def _is_in(code: CodeType, frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False
