"""What a program can be advised to change: the table findings.toml."""

from functools import cache
from importlib.resources import files

import msgspec

from gpuprof.roofline.classes import ClassName


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table."""

    name: str
    kind: ClassName
    change: str
    assumption: str
    together: bool = False
    removes: bool = False


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    finding: tuple[Finding, ...]


@cache
def findings() -> dict[str, Finding]:
    """All rows by name."""
    text = files("gpuprof.roofline.advice").joinpath("findings.toml").read_bytes()
    return {row.name: row for row in msgspec.toml.decode(text, type=_Table).finding}
