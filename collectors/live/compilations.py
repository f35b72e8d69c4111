"""What torch.compile did in this process: how often, for how long, why again, where it broke.

torch keeps all of this itself (torch/_dynamo/utils.py, the same from 2.6 to 2.13): metrics of the
last 64 compilations, the reason and the stack of each graph break, and the guards that failed.
Nothing is asked for beforehand and no logging is turned on, so the program does not notice.
"""

import os
import re
import sys
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch

from gpuprof.collectors.host_events import Compilation, range_row
from gpuprof.collectors.live.profile_recorder import Rows
from gpuprof.collectors.manifest import Compilations, GraphBreak, NotCompiled, Recompiled

# "0/1: tensor 'x' size mismatch at index 0. expected 4, actual 5": the id of the compiled code that
# was tried, and the guard. Behind a guard's code there is the line that made it, as a comment.
_REASON: Final = re.compile(r"^(?:\[?\d+/\d+(?:_\d+)?\]?: )?(?P<guard>.*?)(?:\s{2,}#.*)?$")
_VALUES: Final = re.compile(r"(expected|actual|==) [^,]+")
# torch's stand-in where it found none.
_NO_REASON: Final = "Unable to find recompilation reasons"
_LONGEST_TEXT: Final = 200
# Reasons of graph breaks that were not made one (pytorch torch/_dynamo/exc.py, Unsupported).
_UNHANDLED: Final = "unimplemented"
_TORCH: Final = tuple(os.path.join(folder, "") for folder in torch.__path__)
# Function, reason, file, line.
_Place = tuple[str, str | None, str | None, int | None]


def graph_breaks() -> int | None:
    """Graph breaks that dynamo has counted so far; None where the program compiled nothing."""
    utilities = _utilities()
    if utilities is None:
        return None
    counters = utilities.counters
    # frames: what dynamo looked at. Importing it, as optimizers do, compiles nothing.
    if not counters.get("frames"):
        return None
    return int(sum(counters["graph_break"].values()))


def compilations() -> Compilations | None:
    """All that was compiled so far; None where nothing was."""
    utilities = _utilities()
    if utilities is None or graph_breaks() is None:
        return None
    metrics = utilities.get_compilation_metrics()
    events = _events(metrics, utilities)
    given_up = Counter(_given_up(each) for each in metrics if each.fail_type)
    given_up.update(_skipped(metrics, utilities))
    again = defaultdict[tuple[object, ...], list[Compilation]](list)
    for event in events:
        if event.recompiled:
            again[event.function, event.file, event.line, _kind(event.guard)].append(event)
    broken = Counter(_graph_break(each) for each in utilities.graph_break_reasons)
    return Compilations(
        compiled=len(events),
        recompiled=sum(event.recompiled for event in events),
        compiling_ns=_union_ns([_times_ns(each) for each in metrics]),
        recompilations=tuple(
            _recompiled(alike) for alike in sorted(again.values(), key=len, reverse=True)
        ),
        breaks=tuple(
            GraphBreak(reason=reason, file=file, line=line, times=times)
            for (reason, file, line), times in broken.most_common()
        ),
        given_up=tuple(
            NotCompiled(function=function, reason=reason, file=file, line=line, times=times)
            for (function, reason, file, line), times in given_up.most_common()
        ),
        at_least=len(metrics) >= utilities.DEFAULT_COMPILATION_METRICS_LIMIT,
    )


class CompilationTimes:
    """A `ProfileRecorder` of each compilation.

    Threads are known of those that dynamo was there for when the profile began; of others only
    those of forward passes, which run where the program calls them.
    """

    subject = "compilations"

    def __init__(self) -> None:
        self._thread: int | None = None
        # Kept, so that no other has the identity of one of them.
        self._before: list[Any] = []
        self._noted: _NotingDeque | None = None

    def start(self) -> None:
        """See `ProfileRecorder`."""
        self._thread = threading.get_native_id()
        utilities = _utilities()
        self._before, self._noted = [], None
        if utilities is not None:
            self._before = utilities.get_compilation_metrics()
            kept = utilities._compilation_metrics
            self._noted = utilities._compilation_metrics = _NotingDeque(kept, kept.maxlen)

    def stop(self) -> Rows:
        """See `ProfileRecorder`."""
        utilities = _utilities()
        if utilities is None:
            return {}
        noted = self._noted
        threads = {} if noted is None else {id(metrics): thread for thread, metrics in noted.noted}
        kept = utilities._compilation_metrics
        before = {id(each) for each in self._before}
        found = [each for each in kept if id(each) not in before]
        if noted is not None:
            found = [metrics for _, metrics in noted.noted]
            if kept is noted:
                utilities._compilation_metrics = deque(kept, kept.maxlen)
        rows = []
        for metrics, event in zip(found, _events(found, utilities), strict=True):
            start_ns, end_ns = _times_ns(metrics)
            thread = threads.get(id(metrics), None if event.backward else self._thread)
            rows.append(range_row(event, thread=thread, start_ns=start_ns, end_ns=end_ns))
        self._noted = None
        return {"ranges": rows}


class _NotingDeque(deque[Any]):
    """torch's own deque of metrics, which notes the thread of what it is given."""

    def __init__(self, items: Iterable[Any], maxlen: int | None) -> None:
        super().__init__(items, maxlen)
        self.noted: list[tuple[int, Any]] = []

    def append(self, metrics: Any) -> None:
        self.noted.append((threading.get_native_id(), metrics))
        super().append(metrics)


def _utilities() -> Any:
    # torch.compile imports it when it is first called; we never do, it takes seconds.
    module = sys.modules.get("torch._dynamo.utils")
    # Amid its own import it has not everything yet.
    return module if hasattr(module, "graph_break_reasons") else None


def _events(compiled: Sequence[Any], utilities: Any) -> list[Compilation]:
    # A backward pass has the id of its forward, and no name.
    kept = utilities.get_compilation_metrics()
    forwards = {each.compile_id: each for each in kept if each.co_name}
    return [_event(each, forwards.get(each.compile_id, each), utilities) for each in compiled]


def _event(metrics: Any, forward: Any, utilities: Any) -> Compilation:
    recompiled = bool(metrics.cache_size) and metrics.is_forward is not False
    return Compilation(
        function=forward.co_name or "(unknown)",
        file=forward.co_filename,
        line=forward.co_firstlineno,
        backward=metrics.is_forward is False,
        recompiled=recompiled,
        guard=_guard(_reason(metrics, utilities)) if recompiled else None,
        failure=_first_line(metrics.fail_reason or metrics.fail_type or ""),
    )


def _skipped(compiled: Sequence[Any], utilities: Any) -> Iterable[_Place]:
    """Functions that torch before 2.13 left alone without saying so, because a loop breaks in them.

    It leaves alone in the same way what has nothing to compile. So they are taken for given up on
    only where nothing at all was compiled, or where the one function is left that the reason of an
    unhandled break is of.
    """
    left = [
        each
        for each in compiled
        if each.has_guarded_code is False and not each.fail_type and each.is_forward is not False
    ]
    functions = {(each.co_name, each.co_filename, each.co_firstlineno) for each in left}
    unhandled = [_first_line(reason) for reason in utilities.counters.get(_UNHANDLED, {})]
    alone = len(functions) == 1
    nothing_else = not any(each.has_guarded_code for each in compiled)
    if not (alone and unhandled) and not nothing_else:
        return ()
    reason = unhandled[0] if alone and unhandled else None
    return [
        (each.co_name or "(unknown)", reason, each.co_filename, each.co_firstlineno)
        for each in left
    ]


def _given_up(metrics: Any) -> _Place:
    told = metrics.fail_user_frame_filename, metrics.fail_user_frame_lineno
    file, line = told if told[0] else (metrics.co_filename, metrics.co_firstlineno)
    reason = _first_line(metrics.fail_reason or metrics.fail_type)
    return metrics.co_name or "(unknown)", reason, file, line


def _recompiled(alike: Sequence[Compilation]) -> Recompiled:
    first = alike[0]
    return Recompiled(
        function=first.function,
        file=first.file,
        line=first.line,
        guard=first.guard,
        times=len(alike),
    )


def _kind(guard: str | None) -> str | None:
    """`guard` without the values that made it fail, which differ from one time to the next."""
    return None if guard is None else _VALUES.sub(r"\1", guard)


def _reason(metrics: Any, utilities: Any) -> str | None:
    if hasattr(metrics, "recompile_reason"):
        reason: str | None = metrics.recompile_reason
        return reason
    # torch 2.6 tells it of a function only: one more reason for each code that did not fit.
    tried = metrics.cache_size
    for code, reasons in utilities.guard_failures.items():
        place = (code.co_name, code.co_filename, code.co_firstlineno)
        if place == (metrics.co_name, metrics.co_filename, metrics.co_firstlineno):
            first = tried * (tried - 1) // 2
            return reasons[first] if len(reasons) > first else None
    return None


def _guard(reason: str | None) -> str | None:
    if not reason or reason == _NO_REASON:
        return None
    match = _REASON.match(_first_line(reason))
    return (match["guard"].strip() or None) if match else None


def _graph_break(reason: Any) -> tuple[str, str | None, int | None]:
    place = _users_frame(reason.user_stack)
    return (
        _first_line(reason.reason),
        None if place is None else place.filename,
        None if place is None else place.lineno,
    )


def _users_frame(stack: Sequence[Any]) -> Any:
    """The innermost frame outside of torch, else the innermost."""
    for frame in reversed(stack):
        if not frame.filename.startswith(_TORCH):
            return frame
    return stack[-1] if stack else None


def _first_line(text: object) -> str:
    return next(iter(str(text).strip().splitlines()), "")[:_LONGEST_TEXT]


def _times_ns(metrics: Any) -> tuple[int, int]:
    return 1000 * metrics.start_time_us, 1000 * metrics.end_time_us


def _union_ns(spans: Sequence[tuple[int, int]]) -> int:
    """The time in any of the spans: one compilation may run inside another."""
    total_ns, reached_ns = 0, 0
    for start_ns, end_ns in sorted(spans):
        total_ns += max(0, end_ns - max(start_ns, reached_ns))
        reached_ns = max(reached_ns, end_ns)
    return total_ns
