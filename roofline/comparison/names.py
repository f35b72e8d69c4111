"""The name of a kernel without what its compiler or tuner chose."""

import re
from functools import cache
from importlib.resources import files

import msgspec


class _Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    replacement: str
    source: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    patterns: tuple[_Pattern, ...]


@cache
def normalised(name: str) -> str:
    """`name` without tile sizes, architecture, vector widths and counters.

    A name that nothing would be left of stays as it is.
    """
    short = name
    for pattern, replacement in _patterns():
        short = pattern.sub(replacement, short)
    return short or name


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    text = files("gpuprof.roofline.comparison").joinpath("kernel_names.toml").read_bytes()
    # A group is ${1} in the table, as in Rust and in shells, and \g<1> in Python.
    return tuple(
        (re.compile(row.pattern), re.sub(r"\$\{(\d+)\}", r"\\g<\1>", row.replacement))
        for row in msgspec.toml.decode(text, type=_Table).patterns
    )
