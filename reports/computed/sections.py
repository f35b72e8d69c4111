"""The table of what the figures of each section rest on."""

from functools import cache
from importlib.resources import files

import msgspec


class SectionRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row; the head of sections.toml says what each column means."""

    key: str
    rule: str
    docs: str
    source: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    section: tuple[SectionRule, ...]


@cache
def section_rules() -> dict[str, SectionRule]:
    """All rows by the key of their section."""
    text = files("gpuprof.reports.computed").joinpath("sections.toml").read_bytes()
    return {row.key: row for row in msgspec.toml.decode(text, type=_Table).section}
