"""What calibration measures: a call and the work that is known to be in it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gpuprof.roofline.machine.ceilings import Unit

Call = Callable[[], object]


@dataclass(frozen=True)
class Probe:
    """One known kernel: `amount` FLOPs (compute) or bytes (memory, link) a call."""

    kind: Literal["compute", "memory", "link"]
    name: str
    call: Call
    amount: float
    # The kernel and its size, for people.
    method: str
    precision: str | None = None
    # Left None where the device table knows which unit the library's kernel runs on.
    unit: Unit | None = None
    level: str | None = None
    # Of a cache level: what it holds.
    capacity_bytes: int | None = None
    # Bytes that a CPU's caches read besides, because they allocate a line before they write it.
    allocated: int = 0
    # Repeats start cool: sustained, this work is held back by the power limit.
    in_bursts: bool = False
