"""Follows where the program is while a profile runs: its line, and the module that it is in.

The interpreter calls a trace function for each Python function that begins and, in the program's
own files, for each line. That shows nothing to torch.compile, and leaves the program's modules
without hooks. Of torch and other packages only the calls of modules are followed, so a training
step causes some hundred events, each of a microsecond or less (docs/modules.md has what it costs).
"""

import os
import re
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any, Final

from torch import nn

from gpuprof.collectors.errors import CollectorError
from gpuprof.collectors.live.call_stacks import NO_STACK, CallStacks
from gpuprof.collectors.live.live_objects import live_objects
from gpuprof.collectors.live.module_paths import module_paths
from gpuprof.collectors.live.profile_recorder import Rows
from gpuprof.collectors.live.program_files import ProgramFiles
from gpuprof.collectors.live.unix_clock import UnixClock
from gpuprof.collectors.live.unseen_by_compilers import hide_from_compilers

# A program that calls functions all the time, in a set-up or where it prepares data in Python,
# would take several times as long. After so many events it is asked whether they come too thick:
# they may take a fifth of the time, at a microsecond each. If so, nothing is followed any more
# until the profile ends.
_FREE_EVENTS: Final = 20_000
_EVENT_NS: Final = 1_000
_MOST_OF_THE_TIME: Final = 0.2
_MOST_POSITIONS: Final = 200_000
# With whole stacks the user asked for all of it; a position takes some hundred bytes.
_MOST_POSITIONS_WITH_STACKS: Final = 1_000_000
# What the code calls that torch.compile puts in a function's place, whose lines are of no use, and
# what the rest of a function is called where it could not compile all (torch/_dynamo/utils.py,
# torch/_dynamo/resume_execution.py).
_COMPILED: Final = "__compiled_fn_"
_RESUMED: Final = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+$")
# What a frame is: no matter, a call of a module, of the program, of the program without its lines,
# of a library.
_OTHER, _MODULE, _PROGRAM, _PROGRAM_WITHOUT_LINES, _LIBRARY = range(5)


# The innermost function of the program, or None, and its line; the innermost module; the number of
# the whole stack. Plain tuples: named ones are made by a function of Python.
_Place = tuple[CodeType | None, int | None, nn.Module | None, int]
_NOWHERE: Final[_Place] = (None, None, None, NO_STACK)


class ProgramPositions:
    """A `ProfileRecorder` of where the program is, as rows of the table positions."""

    subject = "the program's lines and modules"

    def __init__(self, *, whole_stacks: bool = False) -> None:
        """`whole_stacks`: also those of Python frames, which needs each function to be followed."""
        self._whole_stacks = whole_stacks

    def start(self) -> None:
        """Begin on the calling thread.

        Raises `CollectorError` where a debugger or a coverage tool follows the program.
        """
        if sys.gettrace() is not None:
            raise CollectorError("another tool follows it with sys.settrace")
        hide_from_compilers(
            *(self._call, self._program_event, self._module_event),
            *(self._enter, self._kind, self._leave, self._goes_on),
            *(self._end_early, self._forget_frames, self._caller_of, CallStacks.below),
            *(ProgramFiles.name, ProgramFiles.file_name, ProgramFiles.stack_name),
        )
        self._files = ProgramFiles()
        self._clock = UnixClock()
        self._names: dict[int, str] = {}
        # By id: a code object is slow to hash. Those in it are kept alive, so ids stay theirs.
        call: Any = nn.Module._wrapped_call_impl
        self._kinds: dict[int, int] = {id(call.__code__): _MODULE}
        self._known = [call.__code__]
        self._running = True
        self._thread = threading.get_ident()
        # The frames that matter, and where the program is in each.
        self._frames: list[FrameType] = []
        self._places: list[_Place] = [_NOWHERE]
        # The stacks that called them, where whole ones are kept.
        self._stacks = CallStacks()
        self._callers: list[int] = []
        # Since when it is where.
        self._positions: list[tuple[int, _Place]] = []
        self._trace = self._call
        self._follow(sys._getframe(1))

    def step_begins(self) -> None:
        """Take the program up again, if events came too thick: a set-up or an import is over."""
        if self._too_thick and self._thread == threading.get_ident() and sys.gettrace() is None:
            self._follow(sys._getframe(1))

    def _follow(self, frame: FrameType) -> None:
        """Follow the calling thread, at present in `frame`."""
        self._too_thick = False
        self._events = 0
        self._asked_at = _FREE_EVENTS
        self._since_ns = perf_counter_ns()
        self._enter_present_frames(frame)
        sys.settrace(self._trace)

    def stop(self) -> Rows:
        """End, and return a row for each stretch of time in which line and module stay."""
        # On another thread the followed one is out of reach: it ends itself at its next event.
        self._running, self._asked_at = False, 0
        if sys.gettrace() == self._trace:
            sys.settrace(None)
        else:
            # Ended early, or by the program: nothing tells how long the last position lasted.
            self._positions[-1:] = [(self._positions[-1][0], _NOWHERE)]
        positions, self._positions = self._positions, []
        positions.append((perf_counter_ns(), _NOWHERE))
        for frame in self._frames:
            frame.f_trace = None
        self._forget_frames()
        paths = _paths([module for _, (_, _, module, _) in positions if module is not None])
        stacks = self._stacks.texts(lambda code: self._files.stack_name(code.co_filename))
        thread = threading.get_native_id()
        return {
            "positions": [
                {
                    "thread": thread,
                    "start_ns": self._clock.at_ns(start),
                    "end_ns": self._clock.at_ns(end),
                    "module": paths.get(id(module)),
                    "stack": stacks[stack],
                    **self._described(code, line),
                }
                for (start, (code, line, module, stack)), (end, _) in pairwise(positions)
            ]
        }

    def _described(self, code: CodeType | None, line: int | None) -> dict[str, object]:
        if code is None:
            return {}
        name = getattr(code, "co_qualname", code.co_name)
        return {
            "file": self._names[id(code)],
            "line": line,
            "function": _RESUMED.sub(r"\1", name),
            "function_line": code.co_firstlineno,
        }

    def _enter_present_frames(self, frame: FrameType | None) -> None:
        """Take up what is running already, as if it had been followed from its start."""
        present = []
        while frame is not None:
            present.append(frame)
            frame = frame.f_back
        for frame in reversed(present):
            event = self._enter(frame)
            if event is not None:
                frame.f_trace = event
        self._positions.append((perf_counter_ns(), self._places[-1]))

    # -- called by the interpreter, which must never see an error from here ----------------------
    # Most of what this costs is calls of functions, so these call few.

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        """A function begins."""
        self._events += 1
        if self._events >= self._asked_at and not self._goes_on():
            return None
        if self._kinds.get(id(frame.f_code)) == _OTHER:
            return None
        time_ns = perf_counter_ns()
        function = self._enter(frame)
        # Where it has lines, the first one follows before anything else.
        if function is not None and not (frame.f_trace_lines and self._places[-1][1] is None):
            self._positions.append((time_ns, self._places[-1]))
        return function

    def _program_event(self, frame: FrameType, event: str, argument: Any) -> Any:
        """A line of the program begins, or one of its functions ends."""
        if event == "line":
            time_ns = perf_counter_ns()
            if self._frames and self._frames[-1] is not frame:
                self._leave(frame, included=False)
            if self._frames and self._frames[-1] is frame:
                code, _, module, stack = self._places[-1]
                if self._whole_stacks:
                    stack = self._stacks.below(self._callers[-1], frame.f_code, frame.f_lineno)
                self._places[-1] = place = (code, frame.f_lineno, module, stack)
                self._positions.append((time_ns, place))
            self._events += 1
            if self._events >= self._asked_at:
                self._goes_on()
            return self._program_event
        return self._module_event(frame, event, argument) and self._program_event

    def _module_event(self, frame: FrameType, event: str, argument: Any) -> Any:
        """The call of a module ends."""
        if event == "return":
            time_ns = perf_counter_ns()
            self._leave(frame, included=True)
            self._positions.append((time_ns, self._places[-1]))
        return self._module_event

    def _enter(self, frame: FrameType) -> Any:
        """Put `frame` on the stack if it matters; returns what is called for its events."""
        code = frame.f_code
        kind = self._kinds.get(id(code))
        if kind is None:
            kind = self._kinds[id(code)] = self._kind(frame)
            self._known.append(code)
        if kind == _OTHER:
            return None
        if kind == _LIBRARY and not self._frames:
            # What runs the program is not what it calls.
            return None
        outer_code, outer_line, outer_module, stack = self._places[-1]
        # A function that begins has no line yet.
        begins = kind != _PROGRAM or frame.f_lineno == code.co_firstlineno
        line = None if begins else frame.f_lineno
        if self._whole_stacks:
            caller = self._caller_of(frame)
            self._callers.append(caller)
            stack = self._stacks.below(caller, code, line)
        self._frames.append(frame)
        frame.f_trace_lines = kind == _PROGRAM
        if kind == _MODULE:
            module = frame.f_locals.get("self")
            self._places.append((outer_code, outer_line, module, stack))
            return self._module_event
        if kind == _LIBRARY:
            self._places.append((outer_code, outer_line, outer_module, stack))
            return self._module_event
        self._places.append((code, line, outer_module, stack))
        return self._program_event

    def _caller_of(self, frame: FrameType) -> int:
        """The stack that calls the function of `frame`, at the line where it does."""
        caller = frame.f_back
        if caller is not None and self._frames and self._frames[-1] is caller:
            return self._stacks.below(self._callers[-1], caller.f_code, caller.f_lineno)
        return self._places[-1][3]

    def _kind(self, frame: FrameType) -> int:
        name = self._files.name(frame.f_code, frame.f_globals)
        if not name:
            followed = self._whole_stacks and self._files.stack_name(frame.f_code.co_filename)
            return _LIBRARY if followed else _OTHER
        self._names[id(frame.f_code)] = name
        for each in frame.f_code.co_names:
            if each.startswith(_COMPILED):
                return _PROGRAM_WITHOUT_LINES
        return _PROGRAM

    def _leave(self, frame: FrameType, *, included: bool) -> None:
        """Take off the stack what stands above `frame`, which has ended unseen, and `frame`."""
        frames = self._frames
        if included and frames and frames[-1] is frame:
            frames.pop()
            self._places.pop()
            del self._callers[len(frames) :]
            return
        for depth in range(len(frames) - 1, -1, -1):
            if frames[depth] is frame:
                end = depth if included else depth + 1
                del frames[end:], self._places[end + 1 :], self._callers[end:]
                return

    def _goes_on(self) -> bool:
        """Whether the program is followed further: it is not slowed down too much."""
        if not self._running:
            self._end_early()
            return False
        self._asked_at = self._events + _FREE_EVENTS // 4
        if not self._whole_stacks:
            spent_ns = self._events * _EVENT_NS
            passed_ns = perf_counter_ns() - self._since_ns
            self._too_thick = spent_ns > _MOST_OF_THE_TIME * passed_ns
        most = _MOST_POSITIONS_WITH_STACKS if self._whole_stacks else _MOST_POSITIONS
        if self._too_thick or len(self._positions) > most:
            self._end_early()
            return False
        return True

    def _end_early(self) -> None:
        sys.settrace(None)
        self._forget_frames()
        self._positions.append((perf_counter_ns(), _NOWHERE))

    def _forget_frames(self) -> None:
        self._frames.clear()
        self._callers.clear()
        self._places[1:] = ()


def _paths(modules: Sequence[nn.Module]) -> dict[int, str]:
    """By its id, the path of each of `modules`."""
    if not modules:
        return {}
    called = list({id(module): module for module in modules}.values())
    paths = module_paths(called, live_objects(nn.Module))
    return {id(module): path for module, path in zip(called, paths, strict=True)}


def _end_in_child() -> None:
    """A forked child, such as a DataLoader's worker, is not followed."""
    if isinstance(getattr(sys.gettrace(), "__self__", None), ProgramPositions):
        sys.settrace(None)


os.register_at_fork(after_in_child=_end_in_child)
