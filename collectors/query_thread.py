"""Runs what makes many small queries on one of polars' own threads.

A query that another thread makes is handed over to polars' threads, and that thread sleeps until
it is done. To wake one and then the other takes as long as most queries of an analysis, which
makes 1,100 to 1,800 of them. A query that is made on a thread of polars runs where it is.
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
    as on Ctrl-C, ends `function` between two of its instructions.
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
        self._abandoned = False
        self._found: list[_Found] = []
        self._error: BaseException | None = None
        # Set by the thread that waits in polars: the other one, abandoned, may stop within a lock.
        # Thread.join does not wait again where a handler has raised (Python 3.11).
        self._over = threading.Event()

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
        try:
            threading.Thread(target=self._move, daemon=True).start()
        except RuntimeError:
            # The interpreter ends, or the system has no thread left.
            self._move()
        try:
            self._over.wait()
        except BaseException:
            self._abandon()
            self._over.wait()
            raise

    def _move(self) -> None:
        # Of two columns each is the work of one of polars' threads.
        first = pl.lit(0).map_batches(self._run, return_dtype=pl.Int32)
        try:
            pl.select(first, pl.lit(0).alias("second"))
        except BaseException as error:
            # Of polars itself, or abandoned when the function had just returned.
            self._error = self._error or error
        finally:
            self._over.set()

    # polars calls it with arguments of its own first, and without them where that fails.
    def _run(self, column: pl.Series, **_: object) -> pl.Series:
        self._thread, _here.moved = threading.get_ident(), True
        try:
            if self._abandoned:
                raise _Abandoned
            self._found.append(self._function())
        except BaseException as error:
            self._error = error
        finally:
            self._thread, _here.moved = None, False
        return column

    def _abandon(self) -> None:
        self._abandoned = True
        if self._thread is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread), ctypes.py_object(_Abandoned)
            )
