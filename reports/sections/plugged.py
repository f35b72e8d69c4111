"""The sections of plug-ins."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import msgspec

from gpuprof.collectors.errors import reason
from gpuprof.collectors.plugins import Plugin, PluginGroup, problem_with
from gpuprof.reports.blocks import Block, Facts, Notices, Paragraph, Prose, Table
from gpuprof.reports.sections.section import BlocksOf, Section
from gpuprof.roofline.analysis import Analysis

T = TypeVar("T")
# What a section of a plug-in may consist of.
_DRAWN: Final = (Facts, Table, Paragraph, Prose, Notices)
_KEY: Final = re.compile(r"[a-z]+(?:-[a-z]+)*")


def plugged_sections(group: PluginGroup[Section]) -> tuple[Section, ...]:
    """The sections of `group`, which break no report and say whose they are."""
    return tuple(map(_guarded, group.load()))


def fault(section: Section) -> str:
    """What keeps a section's key from being an anchor."""
    good = _KEY.fullmatch(section.key)
    return "" if good else f"{section.key!r} is no key of a section: small letters and hyphens"


def _guarded(plugin: Plugin[Section]) -> Section:
    section, by = plugin.value, plugin.origin.distribution
    signature = Paragraph(f"From the plug-in {by}.", "note")
    return replace(
        section,
        title=partial(_title, plugin),
        summary=partial(_blocks, plugin, section.summary, ()),
        basis=partial(_blocks, plugin, section.basis, ()),
        body=partial(_blocks, plugin, section.body, (signature,)),
        page_only=partial(_blocks, plugin, section.page_only, ()),
    )


def _title(plugin: Plugin[Section], analysis: Analysis) -> str:
    title = _tried(plugin, plugin.value.title, analysis)
    return title if isinstance(title, str) else plugin.value.key


def _blocks(
    plugin: Plugin[Section], blocks_of: BlocksOf, behind: tuple[Block, ...], analysis: Analysis
) -> Sequence[Block]:
    """What a section shows with `behind`; a notice where it fails."""
    blocks = _tried(plugin, lambda of: _checked(blocks_of(of)), analysis)
    if blocks is None:
        who = plugin.origin.distribution
        return (Notices((f"The section {plugin.value.key} of {who} failed.",)),)
    return (*blocks, *behind) if blocks else ()


def _checked(blocks: Sequence[Block]) -> Sequence[Block]:
    """`blocks`, where each renderer can draw them. Raises `TypeError` and `ValueError`."""
    for block in blocks:
        if not isinstance(block, _DRAWN):
            names = ", ".join(kind.__name__ for kind in _DRAWN)
            raise TypeError(f"it holds {type(block).__name__}, expected {names}")
        # Its fields are what they are declared to be.
        msgspec.convert(msgspec.to_builtins(block), type(block))
        if isinstance(block, Table) and any(len(row) != len(block.columns) for row in block.rows):
            raise ValueError("a table has rows of more or fewer cells than it has columns")
    return blocks


def _tried(plugin: Plugin[Section], part: Callable[[Analysis], T], analysis: Analysis) -> T | None:
    try:
        return part(analysis)
    except Exception as error:
        what = f"{type(error).__name__}: {reason(error)}"
        problem_with(plugin.origin, f"the section {plugin.value.key} raised {what}")
        return None
