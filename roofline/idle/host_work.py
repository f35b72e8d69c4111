"""What calls, operators and ranges of the host mean for a device that waits: `host_work.toml`."""

import re
from functools import cache
from importlib.resources import files

import msgspec

from gpuprof.roofline.classes import BLOCKING_COPY, SYNCHRONISATION, ClassName, bottleneck_class
from gpuprof.roofline.copies import direction, host_memory


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    kind: ClassName = msgspec.field(name="class")
    # Shorter calls are not meant.
    from_ns: int = 0


class _Scope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    kind: ClassName = msgspec.field(name="class")
    # "": of every domain.
    domain: str = ""


class _Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    operator: str
    as_: str = msgspec.field(name="as")


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    call: tuple[_Call, ...]
    scope: tuple[_Scope, ...]
    plan: tuple[_Plan, ...]
    written: tuple[_Written, ...]


# What the table calls copies, which `kind_of_copy` looks at.
_COPY = "copy"


@cache
def _table() -> _Table:
    text = files("gpuprof.roofline.idle").joinpath("host_work.toml").read_bytes()
    table = msgspec.toml.decode(text, type=_Table)
    for kind in (*(row.kind for row in table.call), *(row.kind for row in table.scope)):
        bottleneck_class(kind)
    return table


@cache
def kind_of_call(name: str, long_ns: int) -> ClassName | None:
    """The class of a runtime call of `long_ns`; `copy` for copies, None for all others."""
    for row in _table().call:
        if long_ns >= row.from_ns and re.search(row.pattern, name):
            return row.kind
    return None


def lengths_that_matter() -> tuple[int, ...]:
    """The lengths at which the class of some call changes, ascending, from 0."""
    return tuple(sorted({0, *(row.from_ns for row in _table().call)}))


def is_copy(kind: ClassName | None) -> bool:
    """Whether `kind_of_call` says that the copy itself tells more."""
    return kind == _COPY


@cache
def kind_of_copy(call: str, name: str | None) -> ClassName | None:
    """What the `call` waits for that made the copy `name`; None where it does not wait.

    A copy to the host waits for the device to come to it. One from pageable memory to the device
    blocks while the driver stages it. From and to pinned memory an asynchronous call does not wait.
    """
    if name is None:
        return None
    memory, way = host_memory(name), direction(name)
    if memory != "pageable" and "Async" in call:
        return None
    if way == "device to host":
        return SYNCHRONISATION
    return BLOCKING_COPY if way == "host to device" else None


@cache
def kind_of_scope(name: str, domain: str) -> ClassName | None:
    """The class of all that the host does within an operator or range; None of most."""
    for row in _table().scope:
        if row.domain in ("", domain) and re.search(row.pattern, name):
            return row.kind
    return None


@cache
def builds_plans(operator: str) -> bool:
    """Whether the library behind `operator` prepares itself for new shapes."""
    return any(re.search(row.pattern, operator) for row in _table().plan)


@cache
def written_as(operator: str) -> str | None:
    """What a program writes where `operator` runs; None where that is not known."""
    return next((row.as_ for row in _table().written if row.operator == operator), None)
