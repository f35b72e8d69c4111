"""Lines and modules from the Python stacks of a trace (with_stack=True).

A frame has the name "train.py(42): step", where 42 is the line at which the function begins, and a
module's call "nn.Module: Linear_3", numbered by class (pytorch torch/csrc/autograd/
profiler_python.cpp). So the function is known and the line is not, and a module's path is made of
the modules around it. Names leave out where a package is installed: all functions count as the
program's but those of Python's library, torch and Triton, and stacks are made of those.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.inheriting import UNKNOWN
from gpuprof.collectors.call_tree.nesting import NONE, Integers, enclosing, parents, thread_codes
from gpuprof.collectors.call_tree.program_places import (
    LINE,
    MODULE,
    STACK,
    PlaceCodes,
    with_places,
)
from gpuprof.collectors.stacks import frame_text, installed_name

# Activation checkpointing runs its forward again under this function (torch/utils/checkpoint.py).
RECOMPUTE: Final = "recompute_fn"
_MODULE: Final = "nn.Module: "
_FUNCTION: Final = re.compile(r"(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)$")
_NUMBERED: Final = re.compile(r"(.+)_(\d+)$")
_OTHERS: Final = frozenset({*sys.stdlib_module_names, "torch", "triton"})


@lru_cache(maxsize=1 << 16)
def is_wanted(name: str) -> bool:
    """Whether a frame of this name tells a module, a line, or that work is repeated."""
    return name.startswith(_MODULE) or RECOMPUTE in name or _function(name) is not None


def with_lines_and_modules(ops: pl.DataFrame, frames: pl.DataFrame) -> pl.DataFrame:
    """`ops`, of one process, with the columns of lines, modules and stacks by its `frames`.

    Each op_id counts the rows from 0.
    """
    if frames.is_empty() or ops.is_empty():
        return ops
    frames = frames.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
    is_module = frames["name"].str.starts_with(_MODULE)
    functions = {name: found for name in frames["name"].unique() if (found := _function(name))}
    called = frames.filter(pl.col("name").is_in(list(functions)))
    if not called.is_empty():
        lines = [functions[name] for name in called["name"]]
        ops = with_places(ops, LINE, _codes(ops, called, LINE, lines))
        ops = with_places(ops, STACK, _codes(ops, called, STACK, _stacks(called, lines)))
    modules = frames.filter(is_module)
    if not modules.is_empty():
        paths = [(path,) for path in _paths(modules)]
        ops = with_places(ops, MODULE, _codes(ops, modules, MODULE, paths))
    return ops


def _stacks(frames: pl.DataFrame, lines: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The stack of each of `frames`, which has these columns of `LINE`. Equal ones are one text."""
    (threads,) = thread_codes(frames)
    outer = parents(threads, frames["start_ns"].to_numpy(), frames["end_ns"].to_numpy())
    # By the caller's text, itself one object, and the line.
    texts: dict[tuple[int, tuple[object, ...]], str] = {}
    found: list[str] = []
    for line, row in zip(lines, outer.tolist(), strict=True):
        above = None if row == NONE else found[row]
        text = texts.get((id(above), line))
        if text is None:
            file, _, function, first = line
            text = frame_text(str(file), None, f"{function}, from line {first}")
            text = texts[id(above), line] = text if above is None else f"{text}\n{above}"
        found.append(text)
    return [(text,) for text in found]


def _codes(
    ops: pl.DataFrame,
    frames: pl.DataFrame,
    columns: tuple[str, ...],
    values: Sequence[tuple[object, ...]],
) -> PlaceCodes:
    """The value of the innermost of `frames` around the start of each operator."""
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values), 1)}
    dtypes = {name: pl.Int32 if "line" in name else pl.String for name in columns}
    table = pl.DataFrame(list(numbers), schema=dtypes, orient="row")
    of_frame = np.array([numbers[value] for value in values], np.int64)
    rows = enclosing(frames, ops, "start_ns")
    at_start: Integers = np.where(rows == NONE, UNKNOWN, of_frame[rows])
    # Which thread waits for a backward pass is not told.
    return PlaceCodes(table, at_start, np.zeros(ops.height, np.int64), at_start)


def _function(name: str) -> tuple[object, ...] | None:
    """The columns of `LINE` for a function of the program; None for any other frame."""
    match = _FUNCTION.match(name)
    if match is None or name.startswith("<"):
        return None
    file = installed_name(match["file"])
    if file.partition("/")[0].removesuffix(".py") in _OTHERS:
        return None
    return file, None, match["function"], int(match["line"])


def _paths(modules: pl.DataFrame) -> list[str]:
    """The path of each call of a module: its class and those around it.

    Of several of one class in one module each has a number, by the order in which they were first
    called: in equal blocks equal modules then have equal names.
    """
    (threads,) = thread_codes(modules)
    outer = parents(threads, modules["start_ns"].to_numpy(), modules["end_ns"].to_numpy())
    names = [name.removeprefix(_MODULE) for name in modules["name"]]
    # By the module around it, as the trace names it, and class: the numbers there.
    alike: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    keys = []
    for name, row in zip(names, outer.tolist(), strict=True):
        match = _NUMBERED.match(name)
        kind, number = (match[1], int(match[2])) if match else (name, 0)
        keys.append((("" if row == NONE else names[row], kind), number))
        alike[keys[-1][0]].add(number)
    ranks = {
        key: {number: rank for rank, number in enumerate(sorted(numbers))}
        for key, numbers in alike.items()
    }
    paths: list[str] = []
    for (key, number), row in zip(keys, outer.tolist(), strict=True):
        own = key[1] if len(alike[key]) == 1 else f"{key[1]}_{ranks[key][number]}"
        paths.append(own if row == NONE else f"{paths[row]}.{own}")
    return paths
