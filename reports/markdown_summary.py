"""The summary as Markdown of one screen, for a comment on a pull request.

It has the blocks of the terminal's summary in their order; what the eye does not need first is
folded away. Names are escaped, so none can break its form.
"""

from collections.abc import Sequence

from gpuprof.reports.blocks import Block, Heading, Notices
from gpuprof.reports.markdown import drawn_blocks, escaped
from gpuprof.reports.sections import sections_of
from gpuprof.roofline.analysis import Analysis

# Sections that are shown unfolded: what limits the program, its step, and what to change.
_FIRST = ("overview", "step", "advice")
_MOST_WARNINGS = 3


def render_markdown_summary(analysis: Analysis, *, folds: bool = True) -> str:
    """The summary as GitHub-flavoured Markdown; without `folds` all is open, without HTML."""
    shown: list[Block] = []
    folded: list[Block] = []
    basis: list[Block] = []
    for section in sections_of(analysis):
        (shown if section.key in _FIRST else folded).extend(section.summary(analysis))
        basis += section.basis(analysis)
    notices = [block for block in (*shown, *folded, *basis) if isinstance(block, Notices)]
    parts = [
        *(f"## {escaped(block.text)}" for block in shown if isinstance(block, Heading)),
        *drawn_blocks(_others(shown)),
        *drawn_blocks(_first_warnings(notices)),
        *_more("Kernels, and other figures", _others(folded), folds),
        *_more("What the figures rest on", _others(basis), folds),
    ]
    return "\n\n".join(parts) + "\n"


def _others(blocks: Sequence[Block]) -> list[Block]:
    return [block for block in blocks if not isinstance(block, Heading | Notices)]


def _first_warnings(notices: Sequence[Notices]) -> list[Block]:
    sentences = [sentence for block in notices for sentence in block.sentences]
    left = len(sentences) - _MOST_WARNINGS
    if not sentences:
        return []
    more = (f"{left} more {'is' if left == 1 else 'are'} in the report.",) if left > 0 else ()
    return [Notices((*sentences[:_MOST_WARNINGS], *more))]


def _more(title: str, blocks: Sequence[Block], folds: bool) -> list[str]:
    inside = drawn_blocks(blocks)
    if not inside:
        return []
    if not folds:
        return [f"### {title}", *inside]
    return [f"<details><summary>{title}</summary>", *inside, "</details>"]
