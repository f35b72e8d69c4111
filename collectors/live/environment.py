"""Environment variables that a library has read for good by the time torch is imported."""

import os
from collections.abc import Mapping
from typing import Final

# OpenMP runtimes read theirs when they are loaded, with torch; MKL reads its own when torch asks
# it for the number of threads, also then (seen with torch 2.13: set later, neither has effect).
READ_WITH_TORCH: Final = (
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "OMP_WAIT_POLICY",
)


class EnvironmentInForce:
    """What the variables were when this was made, which is when torch was imported."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._read = {name: environment.get(name) for name in READ_WITH_TORCH}

    def now(self) -> dict[str, str]:
        """All variables of this process, with the values that have effect."""
        read = {name: value for name, value in self._read.items() if value is not None}
        others = {
            name: value for name, value in self._environment.items() if name not in self._read
        }
        return others | read

    def without_effect(self) -> tuple[str, ...]:
        """The variables that the program has changed since, too late for this process."""
        return tuple(
            name for name, value in self._read.items() if self._environment.get(name) != value
        )
