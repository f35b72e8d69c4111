"""Tells an error of ours from one of the program's that was raised while our code ran.

A signal's handler runs between any two instructions of the main thread, also of our hooks. What
it raises is meant for the program: a time-out of its watchdog, a data loader's dead worker.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from gpuprof.collectors.errors import reason


def is_ours(error: BaseException) -> bool:
    """Whether `error` is a failure of our own code, which must not reach the program."""
    # A panic of polars, which is written in Rust, is no Exception.
    failure = isinstance(error, Exception) or type(error).__name__ == "PanicException"
    return failure and not _raised_by_a_signal_handler(error)


@contextmanager
def hiding_our_errors(told: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """A failure of our own code within this context is `told`, and does not reach the program."""
    try:
        yield
    except BaseException as error:
        if not is_ours(error):
            raise
        told(reason(error))


def _raised_by_a_signal_handler(error: BaseException) -> bool:
    """Whether a frame of the traceback was given the frame that it interrupted, as handlers are."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_back is not None and any(one is frame.f_back for one in _frames_given(frame)):
            return True
        trace = trace.tb_next
    return False


def _frames_given(frame: FrameType) -> Iterator[FrameType]:
    """Frames among the arguments of a call."""
    code = frame.f_code
    # Positional arguments come first, then those by name, then *args.
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 1]
    for name in names:
        value = frame.f_locals.get(name)
        values = value if isinstance(value, tuple) else (value,)
        yield from (one for one in values if isinstance(one, FrameType))


def exception_names(error: BaseException | None) -> tuple[str, ...]:
    """The types of `error` and of what it came from, as "module.Name"; none for None."""
    names: list[str] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        names.append(f"{type(error).__module__}.{type(error).__qualname__}")
        error = error.__cause__ or error.__context__
    return tuple(names)
