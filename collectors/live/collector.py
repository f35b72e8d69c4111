"""What a live collector is: something that records beside the program, in tables of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuprof.collectors.live.collected import Collected

DEFAULT_INTERVAL_NS = 100_000_000


@dataclass(frozen=True)
class LatestReading:
    """What a device said of itself last; None where it said nothing."""

    # A CUDA device number.
    device: int
    sm_clock_mhz: float | None = None
    power_milliwatts: float | None = None


@dataclass(frozen=True)
class Scope:
    """What to record. `device_indices` are CUDA device numbers; None means all visible ones."""

    device_indices: Sequence[int] | None = None
    rank: int = 0
    # Between two samples, for collectors that sample.
    interval_ns: int = DEFAULT_INTERVAL_NS
    # Whether each allocation on a GPU keeps its Python stack.
    memory_stacks: bool = False
    # Told of all devices whenever they are sampled, on the thread that samples.
    on_sample: Callable[[Sequence[LatestReading]], None] = lambda readings: None


@dataclass(frozen=True)
class Note:
    """One thing that a collector could not record, said once."""

    sentence: str
    # The columns that stay empty, and of which device; none where it is about all of it.
    columns: tuple[str, ...] = ()
    device: int | None = None


class LiveCollector(Protocol):
    """Records from `start` to `stop`, both called on the thread that runs the program.

    None of the methods has to catch everything: `LiveCollection` makes a note of what they raise.
    """

    # What is missing so far.
    notes: list[Note]

    def start(self) -> None:
        """Begin to record."""

    def slow_down(self) -> None:
        """The part of the run that matters is over: record less from now on."""

    def stop(self) -> Collected:
        """End, and return the rows by the table of `gpuprof.collectors.schema` they belong to.

        As columns of plain values, best: a library of tables would come into the program. In a
        process forked since `start` there are none.
        """


@dataclass(frozen=True)
class Availability:
    """Whether a collector can record on this machine."""

    available: bool
    # What it found ("driver 570.86"), or why there is nothing.
    finding: str
    # How to get it, where it is missing.
    remedy: str = ""


@dataclass(frozen=True)
class CollectorRow:
    """One row of the roster."""

    name: str
    # What it records, in words.
    subject: str
    # Its notes say nothing about a program that uses no GPU.
    needs_gpu: bool
    # The columns that it fills, by table.
    fills: Mapping[str, tuple[str, ...]]
    find: Callable[[], Availability]
    make: Callable[[Scope], LiveCollector]
