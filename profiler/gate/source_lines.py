"""Which line of a program launches each operator: a process of its own that the gate starts.

    python -m gpuprof.profiler.gate.source_lines FILE MODULE ARGUMENTS...

runs MODULE as `python -m` does and writes FILE. The stacks of torch.profiler name functions and the
lines where those begin; a dispatch mode sees the line itself. It slows every operator down, so
nothing in this process is ever timed. What runs on autograd's threads has no line of Python.
"""

import os
import runpy
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from gpuprof.roofline.gate.result import Place

if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode

# A set-up calls some operators of the steps too, a few times.
_NEARLY_ALL = 0.9


class OpLine(msgspec.Struct, frozen=True, kw_only=True):
    """One operator at one line. The file is relative to the working directory of the process."""

    op: str
    file: str
    line: int
    calls: int


def read_lines(file: Path) -> tuple[OpLine, ...]:
    """What a process wrote, or nothing where it wrote nothing that can be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=tuple[OpLine, ...])
    except (OSError, msgspec.MsgspecError):
        return ()


def launching_places(lines: Iterable[OpLine]) -> dict[str, Place]:
    """The line that launches each operator, where nearly all calls of it come from one line."""
    by_op: dict[str, list[OpLine]] = {}
    for line in lines:
        by_op.setdefault(line.op, []).append(line)
    found = {}
    for op, own in by_op.items():
        most = max(own, key=lambda line: line.calls)
        if most.calls >= _NEARLY_ALL * sum(line.calls for line in own):
            found[op] = Place(file=most.file, line=most.line)
    return found


def main(arguments: list[str]) -> None:
    """Run the module and write the lines, however it ends."""
    file, module, *rest = arguments
    target = Path(file).absolute()
    counts: Counter[tuple[str, str, int]] = Counter()
    sys.argv = [module, *rest]
    try:
        with make_recorder(counts, Path.cwd()):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        lines = [
            OpLine(op=op, file=name, line=line, calls=calls)
            for (op, name, line), calls in counts.items()
        ]
        target.write_bytes(msgspec.json.encode(lines))


def make_recorder(counts: Counter[tuple[str, str, int]], folder: Path) -> "TorchDispatchMode":
    """A mode that counts (operator, file, line) of what runs in it, of files below `folder`."""
    from torch.utils._python_dispatch import TorchDispatchMode

    inside = lru_cache(maxsize=None)(lambda name: _inside(name, folder))

    class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self,
            func: Any,
            types: Any,
            args: tuple[Any, ...] = (),
            kwargs: Mapping[str, Any] | None = None,
        ) -> Any:
            frame: FrameType | None = sys._getframe(1)
            while frame is not None:
                file = inside(frame.f_code.co_filename)
                if file:
                    counts[func._schema.name, file, frame.f_lineno] += 1
                    break
                frame = frame.f_back
            return func(*args, **(kwargs or {}))

    return Recorder()  # type: ignore[no-untyped-call]


def _inside(name: str, folder: Path) -> str:
    """`name` relative to `folder`, "" for what is not the program's own file there."""
    path = Path(os.path.abspath(name))
    own = path.is_relative_to(folder) and path.is_file() and "site-packages" not in path.parts
    return path.relative_to(folder).as_posix() if own else ""


if __name__ == "__main__":
    main(sys.argv[1:])
