"""Runs what makes many small queries on one of polars' own threads.

A query that another thread makes is handed over to polars' threads, and that thread sleeps until
it is done. Waking one and the other takes longer than most queries of an analysis: there are 1,100
to 1,800, and half of the time of a small one went there. A query made on a thread of polars runs
where it is.
"""

import ctypes
import threading
from collections.abc import Callable
from functools import wraps
from typing import Generic, ParamSpec, TypeVar

import polars as pl

_Arguments = ParamSpec("_Arguments")
_Found = TypeVar("_Found")

_here = threading.local()


def on_query_thread(function: Callable[_Arguments, _Found]) -> Callable[_Arguments, _Found]:
    """`function`, which runs on a thread of polars while its caller waits.

    It raises what `function` does. What a signal's handler raises meanwhile in the main thread,
    as on Ctrl-C, ends `function` between two instructions, as it does on a thread's own.
    """

    @wraps(function)
    def moved(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Found:
        if getattr(_here, "moved", False):
            return function(*args, **kwargs)
        return _Call(lambda: function(*args, **kwargs)).result()

    return moved


class _Abandoned(BaseException):
    """Nobody waits for the call any longer."""


class _Call(Generic[_Found]):
    """A call of a function without arguments, made once."""

    def __init__(self, function: Callable[[], _Found]) -> None:
        self._function = function
        self._thread: int | None = None
        self._found: list[_Found] = []
        self._error: BaseException | None = None

    def result(self) -> _Found:
        """What the function returns; raises what it raises."""
        if threading.current_thread() is threading.main_thread():
            self._wait_for_signals_too()
        else:
            self._move()
        if self._error is not None:
            raise self._error
        return self._found[0]

    def _wait_for_signals_too(self) -> None:
        # Handlers run on the main thread, which must not be in polars meanwhile.
        waits = threading.Thread(target=self._move, daemon=True)
        waits.start()
        try:
            waits.join()
        except BaseException:
            self._abandon()
            waits.join()
            raise

    def _move(self) -> None:
        # Of two columns each is the work of one of polars' threads.
        first = pl.lit(0).map_batches(self._run, return_dtype=pl.Int32)
        try:
            pl.select(first, pl.lit(0).alias("second"))
        except BaseException as error:
            # Of polars itself, or abandoned when the function had just returned.
            self._error = self._error or error

    def _run(self, column: pl.Series) -> pl.Series:
        self._thread, _here.moved = threading.get_ident(), True
        try:
            self._found.append(self._function())
        except BaseException as error:
            self._error = error
        finally:
            self._thread, _here.moved = None, False
        return column

    def _abandon(self) -> None:
        if self._thread is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread), ctypes.py_object(_Abandoned)
            )
