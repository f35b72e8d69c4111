"""What a section of a report is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gpuprof.reports.blocks import Block
from gpuprof.roofline.analysis import Analysis

BlocksOf: TypeAlias = Callable[[Analysis], Sequence[Block]]


def no_blocks(analysis: Analysis) -> Sequence[Block]:
    """For a section that a medium does without."""
    return ()


@dataclass(frozen=True)
class Section:
    """One section: a title, and what it shows of an analysis in each medium.

    Each renderer loops over all sections; one without blocks is left out.
    """

    # Its anchor in a page.
    key: str
    title: Callable[[Analysis], str]
    # The fields of `Analysis` that are its subject; together the sections cover all of them.
    fields: tuple[str, ...] = ()
    # It is about steps and device work, and left out where only dumps or logs of collectives are.
    of_work: bool = False
    # In a terminal.
    summary: BlocksOf = no_blocks
    # Below all summaries in a terminal: what the figures rest on.
    basis: BlocksOf = no_blocks
    # In a page and in Markdown; a page shows what only it has in front.
    body: BlocksOf = no_blocks
    page_only: BlocksOf = no_blocks


def titled(title: str) -> Callable[[Analysis], str]:
    """The same title for every analysis."""
    return lambda analysis: title
