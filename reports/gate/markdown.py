"""The verdicts of a gate as Markdown: a job's summary, and a comment on a pull request."""

from gpuprof.reports.formatting import printable
from gpuprof.reports.gate import sentences
from gpuprof.reports.gate.first_look import first_look
from gpuprof.reports.gate.reasons import last_words, reasons
from gpuprof.reports.markdown import escaped, table
from gpuprof.roofline.gate.result import GateResult

# GitHub refuses a job summary of more than 1 MiB and a comment of more than 65,536 characters.
MOST_SUMMARY_BYTES = 1_000_000
MOST_COMMENT_BYTES = 60_000
# The first line of a comment, by which the one to update is found.
COMMENT_MARKER = "<!-- gpuprof gate -->"

_LONGEST_NAME = 200
_LONGEST_SENTENCE = 600
# Room for the sentence that says what was left out.
_RESERVE = 200
_HEAD = ("Benchmark", "Metric", "Verdict", ">Base → head", ">Change [95 %]", ">Detects")


def render_markdown(result: GateResult, *, most_bytes: int = MOST_SUMMARY_BYTES) -> str:
    """`result` as GitHub-flavoured Markdown of at most `most_bytes` in UTF-8.

    What asks for attention comes first; what does not fit is left out from the end, which then
    says how much.
    """
    document = _Document(most_bytes - _RESERVE)
    head, sides = escaped(sentences.headline(result)), escaped(sentences.sides(result))
    document.add(f"## gpuprof gate: {head}\n\n{sides}\n")
    if look := first_look(result):
        document.add(f"**{_clipped(look, _LONGEST_SENTENCE)}**\n")
    rows = sentences.rows(result.judgements)
    attention = [row for row in rows if not sentences.plain(row.judgement)]
    document.add_table("", [_row(row) for row in attention])
    document.add_lines("", [f"- {_clipped(sentences.remark(row.judgement))}" for row in attention])
    for words in last_words(result):
        # Four blanks make code of a line, whatever is in it.
        said = [f"    {printable(line)[:_LONGEST_NAME]}" for line in words.lines]
        document.add_lines(f"### {_clipped(words.title)}", said)
    for explanation in result.explanations:
        why = reasons(explanation, result)
        lines = [f"- {_clipped(line)}" for line in why.told]
        document.add_lines(f"### {_clipped(why.title)}", lines)
    document.add_lines(
        "### Warnings", [f"- {_clipped(text)}" for text in sentences.warnings(result)]
    )
    passed = [_row(row) for row in rows if sentences.plain(row.judgement)]
    summary = f"<details><summary>{len(passed)} more, nothing wrong</summary>"
    document.add_table(summary, passed, end="</details>")
    return document.text()


def render_comment(result: GateResult) -> str:
    """`result` as the body of a comment that is found again by its first line."""
    marker = f"{COMMENT_MARKER}\n"
    return marker + render_markdown(result, most_bytes=MOST_COMMENT_BYTES - len(marker))


class _Document:
    """Text that grows up to a size and counts the lines that found no room."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._blocks: list[str] = []
        self._omitted = 0

    def add(self, block: str) -> None:
        """Add a block whatever its size."""
        self._blocks.append(block)
        self._left -= _size(block)

    def add_table(self, title: str, rows: list[tuple[str, ...]], end: str = "") -> None:
        """Add a table under `title`, as many rows as there is room for."""
        head = table(_HEAD, ()).split("\n")
        self._add(title, head, [table(("",), (row,)).split("\n")[2] for row in rows], end)

    def add_lines(self, title: str, lines: list[str]) -> None:
        """Add a list under `title`, as many lines as there is room for."""
        self._add(title, [], lines, "")

    def _add(self, title: str, head: list[str], lines: list[str], end: str) -> None:
        if not lines:
            return
        opening = [*([title, ""] if title else []), *head]
        closing = ["", end] if end else []
        room = self._left - sum(_size(line) for line in (*opening, *closing)) - 2
        taken = []
        for line in lines:
            room -= _size(line)
            if room < 0:
                break
            taken.append(line)
        self._omitted += len(lines) - len(taken)
        if taken:
            self.add("\n".join([*opening, *taken, *closing, ""]))

    def text(self) -> str:
        """All of it, with a last sentence where something is missing."""
        if self._omitted:
            self._blocks.append(
                f"**Cut short:** {self._omitted} more lines did not fit here; "
                "gate.json and report.html have them all.\n"
            )
        return "\n".join(self._blocks)


def _size(line: str) -> int:
    """Bytes of a line and its end."""
    return len(line.encode()) + 1


def _row(row: sentences.VerdictRow) -> tuple[str, ...]:
    judgement = row.judgement
    strong = "**" if judgement.fails else ""
    return (
        _clipped(judgement.benchmark),
        escaped(judgement.metric.name),
        f"{strong}{sentences.verdict_word(judgement)}{strong}",
        escaped(row.figures),
        escaped(row.change),
        row.detectable,
    )


def _clipped(text: str, most: int = _LONGEST_NAME) -> str:
    if len(text) > most:
        text = f"{text[: most - 1]}…"
    return escaped(text)
