"""Bottleneck classes: one row of `classes.toml` says all that anything needs to know of one.

A class names what holds a piece of work back, and a part of a step's time. What adds a class
assigns it, and adds its row; sums, legends, colours and reports follow from the row. Plug-ins add
classes of work below its roof, each with the rule that assigns it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from gpuprof.collectors.plugins import PluginGroup

if TYPE_CHECKING:
    from gpuprof.roofline.cost_models.call import OpCall

_NAME: Final = re.compile(r"[a-z]+(?:[ -][a-z]+)*")
_COLOUR: Final = re.compile(r"#[0-9a-fA-F]{6}")

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


@dataclass(frozen=True)
class JudgedWork:
    """All calls of one operator with one set of arguments, as a rule sees them."""

    # Of the operator, or of a copy without one.
    name: str
    # With its arguments; None where they were not recorded.
    call: "OpCall | None"
    # Names of the kernels that a call launches, as far as they were recorded.
    kernels: tuple[str, ...]
    calls: int
    device_ns: int
    # The least time that the ceilings allow, over device_ns.
    roof_fraction: float
    # Of all calls; None where unknown.
    flops: int | None
    bytes_moved: int | None
    # The class that it has without the rule.
    kind: ClassName


@dataclass(frozen=True)
class ClassRule:
    """A class that a plug-in adds, and what assigns it.

    The rule is asked about work that is below its roof. What the work loses stays what it is; the
    rule says why.
    """

    row: BottleneckClass
    # One sentence that says why the work is of this class, or None where it is not.
    applies: Callable[[JudgedWork], str | None]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rows: tuple[BottleneckClass, ...] = msgspec.field(name="class")


@cache
def _ours() -> tuple[BottleneckClass, ...]:
    text = files("gpuprof.roofline").joinpath("classes.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).rows


def _fault(rule: ClassRule) -> str:
    """What keeps a rule's class from being shown as ours are."""
    row = rule.row
    msgspec.convert(msgspec.to_builtins(row), BottleneckClass)
    if row.idle or not row.has_roof or not (row.part and row.loss):
        return f"the class {row.name!r} is not one of work: has_roof, not idle, with part and loss"
    if not _NAME.fullmatch(row.name):
        return f"{row.name!r} is no name of a class: small letters, blanks and hyphens"
    if not (_COLOUR.fullmatch(row.light) and _COLOUR.fullmatch(row.dark)):
        return f"the class {row.name!r} has no colours as #12abef"
    for what, value, known in (
        ("mark", row.mark, {each.mark for each in _ours()} - {""}),
        ("terminal colour", row.terminal, {each.terminal for each in _ours()}),
    ):
        if value not in known:
            return f"the class {row.name!r} has the {what} {value!r}: {', '.join(sorted(known))}"
    return ""


CLASSES: Final = PluginGroup(
    name="gpuprof.classes",
    adds="class",
    kinds=(ClassRule,),
    claims=lambda rule: (rule.row.name,),
    ours=lambda: [row.name for row in _ours()],
    fault=_fault,
)


@cache
def classes() -> dict[ClassName, BottleneckClass]:
    """All classes by name, in the order of a step's split.

    Those of plug-ins come after our classes of work that has a roof.
    """
    plugged = [plugin.value.row for plugin in CLASSES.load()]
    rows = list(_ours())
    place = next(i for i, row in enumerate(rows) if row.name != AT_ROOF and not row.has_roof)
    return {row.name: row for row in (*rows[:place], *plugged, *rows[place:])}


def bottleneck_class(name: ClassName) -> BottleneckClass:
    """The row of `name`. Raises `ValueError` where there is none."""
    try:
        return classes()[name]
    except KeyError:
        raise ValueError(f"{name!r} is no bottleneck class") from None
