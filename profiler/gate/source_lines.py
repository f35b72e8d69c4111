"""Which line of a program launches each operator: a process of its own that the gate starts.

    python -m gpuprof.profiler.gate.source_lines FILE MODULE ARGUMENTS...

runs MODULE as `python -m` does and writes FILE. The stacks of torch.profiler name functions and the
lines where those begin; a dispatch mode sees the line itself. It slows every operator down, so
nothing in this process is ever timed. What autograd runs has no line of Python, but for a backward
that is written in Python: `recorded_places` finds whose it is.
"""

import os
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from gpuprof.roofline.gate.call_text import call_text, tensor_text
from gpuprof.roofline.gate.launching import OpLine

if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode

# Between a line that starts a backward pass and what autograd then runs (torch/autograd/graph.py).
_RUNS_BACKWARD = "_engine_run_backward"


def read_lines(file: Path) -> tuple[OpLine, ...]:
    """What a process wrote, or nothing where it wrote nothing that can be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=tuple[OpLine, ...])
    except (OSError, msgspec.MsgspecError):
        return ()


def main(arguments: list[str]) -> None:
    """Run the module and write the lines, however it ends."""
    file, module, *rest = arguments
    target = Path(file).absolute()
    counts: Counter[tuple[str, str, str, int]] = Counter()
    sys.argv = [module, *rest]
    try:
        with make_recorder(counts, Path.cwd()):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        lines = [
            OpLine(op=op, call=call, file=name, line=line, calls=calls)
            for (op, call, name, line), calls in counts.items()
        ]
        target.write_bytes(msgspec.json.encode(lines))


def make_recorder(counts: Counter[tuple[str, str, str, int]], folder: Path) -> "TorchDispatchMode":
    """A mode that counts (operator, call, file, line) of what runs in it, of files in `folder`."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    inside = lru_cache(maxsize=None)(lambda name: _inside(name, folder))
    # The backward pass that this thread is in, else -1.
    current_graph_task: Callable[[], int] = torch._C._current_graph_task_id

    class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self,
            func: Any,
            types: Any,
            args: tuple[Any, ...] = (),
            kwargs: Mapping[str, Any] | None = None,
        ) -> Any:
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and frame.f_code.co_name != _RUNS_BACKWARD:
                file = inside(frame.f_code.co_filename)
                if file:
                    name = func._schema.name
                    texts = _tensors((*args, *(kwargs or {}).values()))
                    tensors = ", ".join(text for text in texts if text)
                    backward = current_graph_task() != -1
                    op, call = (call_text(name, t, backward=backward) for t in ("", tensors))
                    counts[op, call, file, frame.f_lineno] += 1
                    break
                frame = frame.f_back
            return func(*args, **(kwargs or {}))

    return Recorder()  # type: ignore[no-untyped-call]


def _tensors(arguments: Iterable[Any]) -> Iterator[str]:
    """The tensors among the arguments of an operator, in their order."""
    import torch

    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield tensor_text(str(argument.dtype).removeprefix("torch."), list(argument.shape))
        elif isinstance(argument, (list, tuple)):
            for one in argument:
                if isinstance(one, torch.Tensor):
                    yield tensor_text("", list(one.shape))


def _inside(name: str, folder: Path) -> str:
    """`name` relative to `folder`, "" for what is not the program's own file there."""
    path = Path(os.path.abspath(name))
    own = path.is_relative_to(folder) and path.is_file() and "site-packages" not in path.parts
    return path.relative_to(folder).as_posix() if own else ""


if __name__ == "__main__":
    main(sys.argv[1:])
