"""Bottleneck classes: one row of `classes.toml` says all that anything needs to know of one.

A class names what holds a piece of work back, and a part of a step's time. What adds a class
assigns it, and adds its row; sums, legends, colours and reports follow from the row.
"""

from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias

import msgspec

# The name of a row of `classes.toml`.
ClassName: TypeAlias = str

AT_ROOF: ClassName = "roof"
COMPUTE: ClassName = "compute"
MEMORY: ClassName = "memory"
FEW_BLOCKS: ClassName = "few-blocks"
TAIL: ClassName = "tail"
SMALL: ClassName = "small"
CACHE: ClassName = "cache"
NO_TENSOR: ClassName = "no-tensor"
CLOCK: ClassName = "clock"
UNKNOWN: ClassName = "unknown"
# Of a step's time: what nothing hides.
COMMUNICATION: ClassName = "communication"
COPY: ClassName = "copy"
# Communication that another rank of the job keeps waiting, where the ranks tell.
OTHER_RANK: ClassName = "other rank"
# No device work, on a device that another one of the process keeps waiting.
OTHER_DEVICE: ClassName = "other device"
# No device work, by what the host does meanwhile (`gpuprof.roofline.idle`).
QUEUED: ClassName = "queued"
SYNCHRONISATION: ClassName = "synchronisation"
DATA_LOADER: ClassName = "data loader"
BLOCKING_COPY: ClassName = "blocking copy"
ALLOCATOR: ClassName = "allocator"
COMPILATION: ClassName = "compilation"
GARBAGE_COLLECTION: ClassName = "garbage collection"
HOST_WORK: ClassName = "host work"
UNEXPLAINED: ClassName = "unexplained"
# The host does nothing but launch; on a CPU no operator runs, but what calls them.
LAUNCH: ClassName = "launch"
OUTSIDE: ClassName = "outside"


class BottleneckClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row; the head of `classes.toml` says what each column means."""

    name: ClassName
    meaning: str
    part: str
    loss: str = ""
    idle: bool = False
    has_roof: bool = False
    gain: str = ""
    rare: bool = False
    removable: bool = True
    mark: str
    fill: Literal["solid", "dots", "stripes"]
    light: str
    dark: str
    terminal: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rows: tuple[BottleneckClass, ...] = msgspec.field(name="class")


@cache
def classes() -> dict[ClassName, BottleneckClass]:
    """All classes by name, in the order of a step's split."""
    text = files("gpuprof.roofline").joinpath("classes.toml").read_bytes()
    return {row.name: row for row in msgspec.toml.decode(text, type=_Table).rows}


def bottleneck_class(name: ClassName) -> BottleneckClass:
    """The row of `name`. Raises `ValueError` where there is none."""
    try:
        return classes()[name]
    except KeyError:
        raise ValueError(f"{name!r} is no bottleneck class") from None
