"""Tests that are benchmarks: their marker, their names, and how often each calls its function."""

import os
from dataclasses import dataclass

import pytest

MARKER = "gpuprof"
DEFAULT_STEPS = "5,20,2"
# The target of the gate that runs them.
TARGET = "tests"


@dataclass(frozen=True)
class Steps:
    """How often a benchmark calls its function."""

    warmup: int
    timed: int
    profiled: int

    @classmethod
    def parse(cls, text: str) -> "Steps":
        """From "5,20,2". Raises `pytest.UsageError`."""
        parts = text.split(",")
        if len(parts) != 3 or not all(part.strip().isdecimal() for part in parts):
            raise pytest.UsageError(
                f"--gpuprof-steps is {text!r}; give three numbers: {DEFAULT_STEPS}"
            )
        return cls(*map(int, parts))


def benchmark_name(item: pytest.Item) -> str:
    """A name for the benchmark of `item` that is unique in a folder and fit for a file."""
    return f"{item.path.stem}.{item.name}".replace(os.sep, "_")


def budgets(items: list[pytest.Item]) -> dict[str, str]:
    """The budget of each marked test that states one, by the name of its benchmark."""
    found = {}
    for item in items:
        marker = item.get_closest_marker(MARKER)
        if marker is not None and marker.kwargs.get("budget") is not None:
            found[f"{TARGET}/{benchmark_name(item)}"] = str(marker.kwargs["budget"])
    return found
