"""Writes docs/tutorial.md: what gpuprof says of each program in examples/diagnosis.

    python scripts/write_tutorial.py

The programs are shown as they are, what gpuprof says is of their recordings in
tests/data/diagnosis, and what a fixed program took is in the table of examples/diagnosis/README.md.
The order, and what each teaches, is in docs/site/tutorial.toml.
"""

import ast
import io
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuprof.collectors import storage
from gpuprof.reports.console.streams import OutputStream
from gpuprof.reports.console.terminal import Terminal
from gpuprof.reports.terminal import render_summary
from gpuprof.roofline.analyze import analyze

ROOT: Final = Path(__file__).parents[1]
PROGRAMS: Final = ROOT / "examples" / "diagnosis"
RECORDINGS: Final = ROOT / "tests" / "data" / "diagnosis"
_MARK: Final = "# expected here"
# Of the summary: what says what it is, and what to do.
_FACTS: Final = ("Step time", "Largest loss", "To change")
_INTRODUCTION: Final = """\
# Tutorial: what slows a program down, and how gpuprof tells

Each program below does one thing wrong, and right with `--fixed`. To try one:

```
gpuprof run --stop-after examples/diagnosis/item_each_step.py
gpuprof run --stop-after examples/diagnosis/item_each_step.py --fixed
```

What gpuprof says is what it prints of a recording on an NVIDIA H200 with torch 2.11, shortened to \
the sentence that begins every report, the step time, the largest loss and the first changes. All \
of it: `gpuprof report tests/data/diagnosis/item_each_step`. In the code, `<--` marks the line \
that is to be named.

"""
_FIXED_ROW: Final = re.compile(r"^\| (\w+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def main() -> None:
    """Write the page."""
    groups = msgspec.toml.decode((ROOT / "docs" / "site" / "tutorial.toml").read_bytes())["group"]
    table = (PROGRAMS / "README.md").read_text()
    fixed = {row[1]: row.groups()[1:] for row in _FIXED_ROW.finditer(table)}
    page = _INTRODUCTION + "\n".join(_group(group, fixed) for group in groups)
    (ROOT / "docs" / "tutorial.md").write_text(page)


def _group(group: dict[str, Any], fixed: dict[str, Any]) -> str:
    programs = "\n".join(_program(program, fixed) for program in group["program"])
    return f"## {group['title']}\n\n{group['lesson']}\n\n{programs}"


def _program(program: dict[str, str], fixed: dict[str, Any]) -> str:
    name = program["name"]
    source = (PROGRAMS / f"{name}.py").read_text()
    wrong, _, right = (ast.get_docstring(ast.parse(source)) or "").partition("Fixed: ")
    # Without the command, where a program has one of its own.
    told = re.sub(r"^ {4}.*$", "", wrong, flags=re.MULTILINE)
    parts = [f"### {program['title']}", " ".join(told.split())]
    parts.append(f"```python\n{_code(source)}\n```")
    parts.append(f"gpuprof says:\n\n```\n{_said(name)}\n```")
    if right:
        change = " ".join(right.split())
        parts.append(f"**To change.** {change[0].upper()}{change[1:]}")
    if name in fixed:
        found, promised, took = fixed[name]
        parts.append(
            f"**What it gained.** A step of {found} was to become one of {promised}, and took "
            f"{took} with `--fixed`."
        )
    parts.append(program["lesson"])
    return "\n\n".join(parts) + "\n"


def _code(source: str) -> str:
    """The program below its docstring and imports."""
    body = ast.parse(source).body
    first = next(node for node in body[1:] if not isinstance(node, ast.Import | ast.ImportFrom))
    code = "\n".join(source.splitlines()[first.lineno - 1 :])
    return code.partition("\n\n\nif __name__")[0].replace(_MARK, "# <--").strip()


def _said(name: str) -> str:
    """The parts of the summary of a recording that say what it is and what to do."""
    written = io.StringIO()
    terminal = Terminal(OutputStream(written))
    terminal.width = 80
    render_summary(analyze(storage.load(RECORDINGS / name)), terminal)
    paragraphs = written.getvalue().rstrip().split("\n\n")
    facts = [fact for paragraph in paragraphs[2:] for fact in _facts(paragraph)]
    return "\n".join([paragraphs[1], "", *facts])


def _facts(paragraph: str) -> list[str]:
    """Those of `_FACTS`, each with the lines that go on below it."""
    found: list[str] = []
    taken = False
    for line in paragraph.splitlines():
        if not line.startswith(" "):
            taken = line.startswith(_FACTS)
        if taken:
            found.append(line)
    return found


if __name__ == "__main__":
    main()
