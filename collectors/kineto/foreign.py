"""Traces of other tools that have the form of torch's: which they are, and what to do with them."""

import re
from collections.abc import Collection
from functools import cache
from importlib.resources import files

import msgspec


class ForeignTrace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row; the head of `foreign.toml` says what each column means."""

    name: str
    remedy: str
    processes: str
    categories: tuple[str, ...]
    source: str

    def wrote(self, processes: Collection[str], categories: Collection[str]) -> bool:
        """Whether a trace with these names of processes and unread categories is of this kind."""
        named = self.processes and any(re.search(self.processes, name) for name in processes)
        return bool(named) or any(one.lower() in self.categories for one in categories)


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    foreign: tuple[ForeignTrace, ...]


@cache
def foreign_traces() -> tuple[ForeignTrace, ...]:
    """All rows of `foreign.toml`."""
    text = files("gpuprof.collectors.kineto").joinpath("foreign.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).foreign
