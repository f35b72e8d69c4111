"""Frames of a stack of Python that is kept as text, with the functions that they are in."""

import ast
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gpuprof.collectors.live.program_files import ProgramFiles

# As traceback.format_list writes a frame.
_FRAME: Final = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$')


@dataclass(frozen=True)
class FramePlace:
    """One frame of a stack."""

    # As people know it: of the program's own files below its working directory relative to that, of
    # others without where they are installed.
    file: str
    line: int
    function: str
    # Where the function begins; None where its source is not there.
    function_line: int | None
    # In one of the program's own files.
    own: bool


def places_of(stack: str, files: ProgramFiles) -> list[FramePlace]:
    """The frames of `stack`, a text as Python prints tracebacks, the outermost first."""
    return [_place(match, files) for match in map(_FRAME.match, stack.splitlines()) if match]


def _place(match: re.Match[str], files: ProgramFiles) -> FramePlace:
    path, line = match["file"], int(match["line"])
    own = files.file_name(path)
    if not own:
        return FramePlace(files.stack_name(path), line, match["function"], None, own=False)
    name, first = match["function"], None
    for function in _functions(path):
        # Of functions inside one another the last one that holds the line is the innermost.
        if function.first_line <= line <= function.last_line and function.is_called(name):
            name, first = function.qualified_name, function.first_line
    return FramePlace(own, line, name, first, own=True)


@dataclass(frozen=True)
class _Function:
    qualified_name: str
    first_line: int
    last_line: int

    def is_called(self, name: str) -> bool:
        return self.qualified_name == name or self.qualified_name.endswith(f".{name}")


@lru_cache(maxsize=256)
def _functions(path: str) -> tuple[_Function, ...]:
    """All functions of a source file, in the order of its lines; none where it cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(_defined_in(tree, ""))


def _defined_in(node: ast.AST, prefix: str) -> Iterator[_Function]:
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            # As a code object counts, with its decorators.
            first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
            yield _Function(prefix + child.name, first, child.end_lineno or child.lineno)
            inner = f"{prefix}{child.name}.<locals>."
        elif isinstance(child, ast.ClassDef):
            inner = f"{prefix}{child.name}."
        yield from _defined_in(child, inner)
