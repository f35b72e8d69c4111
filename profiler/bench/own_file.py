"""A file of the user with functions to time: `gpuprof bench --file`.

Each function whose name begins with `bench_` is timed. `SIZES`, `inputs(size)`, `flops(size)` and
`bytes_moved(size)` of the module mean what they mean to `gpuprof.benchmark`.
"""

import difflib
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

from gpuprof.collectors.errors import CaptureError, CommandError, problem_of, reason
from gpuprof.profiler.bench.functions import FunctionsBySize, Size

_PREFIX: Final = "bench_"
_CALLABLES: Final = ("inputs", "flops", "bytes_moved")
_EXPECTED: Final = f"a Python file with functions {_PREFIX}NAME, SIZES and perhaps inputs(size)"


def read_subject(path: Path, wanted: Sequence[str], sizes: Sequence[str]) -> FunctionsBySize:
    """What `path` has to time: all of it, or the functions `wanted`, at its `sizes` or these.

    Raises `CommandError` for what it does not have, and `CaptureError` where it cannot be run.
    """
    names = _run(path)
    functions = {
        name.removeprefix(_PREFIX): value
        for name, value in names.items()
        if name.startswith(_PREFIX) and callable(value)
    }
    if not functions:
        raise CaptureError(path, "no function to time", expected=_EXPECTED)
    for name in wanted:
        if name.removeprefix(_PREFIX) not in functions:
            near = difflib.get_close_matches(name, functions, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            there = ", ".join(functions)
            raise CommandError(f"{path}: no function {_PREFIX}{name}: {hint}there are {there}", 2)
    chosen = [name.removeprefix(_PREFIX) for name in wanted] or list(functions)
    own = names.get("SIZES", ())
    if not sizes and (isinstance(own, str) or not isinstance(own, Sequence) or not own):
        raise CommandError(f"{path}: SIZES is {own!r}; give a list of sizes, or --sizes", 2)
    for name in _CALLABLES:
        if name in names and not callable(names[name]):
            raise CaptureError(path, f"{name} is {names[name]!r}", expected="a function of a size")
    return FunctionsBySize(
        title=path.name,
        functions={name: functions[name] for name in chosen},
        sizes=[parsed_size(text) for text in sizes] if sizes else tuple(own),
        inputs=names.get("inputs"),
        flops=names.get("flops"),
        bytes_moved=names.get("bytes_moved"),
    )


def parsed_size(text: str) -> Size:
    """ "4096" as 4096, "0.5" as 0.5, "512x64" as (512, 64); anything else as it is."""
    parts = text.split("x")
    if all(part.isdecimal() for part in parts):
        numbers = tuple(map(int, parts))
        return numbers if len(numbers) > 1 else numbers[0]
    try:
        return float(text)
    except ValueError:
        return text


def _run(path: Path) -> dict[str, Any]:
    """The names that running `path` makes; modules beside it can be imported."""
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise CaptureError(path, problem_of(error), expected=_EXPECTED) from error
    # torch.compile looks for the module of a function by its name.
    name = f"bench_file_{path.stem}"
    spec = spec_from_file_location(name, path, loader=SourceFileLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    # It stays: a function may import only when it is called.
    sys.path.insert(0, str(path.absolute().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        place = _line_in(path, error)
        what = f"{type(error).__name__}: {reason(error)}"
        raise CaptureError(path, what, place=place, expected=_EXPECTED) from error
    return vars(module)


def _line_in(path: Path, error: BaseException) -> str:
    """The line of `path` that raised `error`, in words; "" where it is none of its lines."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}" if error.lineno else ""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}" if line else ""
