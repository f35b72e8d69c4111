"""Whatever comes from a file is text in every form of output: none of it commands, links or runs.

Each form has one function, which these tests give any text.
"""

import csv
import io
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import msgspec
import polars as pl
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.text import Text

from gpuprof.collectors.errors import LONGEST_LINE, CaptureError, CommandError, describe
from gpuprof.collectors.plain_text import printable, shortened
from gpuprof.reports.console.characters import without_commands
from gpuprof.reports.console.streams import OutputStream
from gpuprof.reports.console.terminal import Terminal
from gpuprof.reports.exported_tables import as_csv
from gpuprof.reports.gate.annotations import workflow_command
from gpuprof.reports.html.templating import embedded_json, make_environment
from gpuprof.reports.markdown import INVISIBLE_SPACE, escaped

# Any characters, and more often those that mean something somewhere.
MEANING = (
    *("::error::", "##[error]", "##vso[task.x]", "##teamcity[x]", "\x1b[31m", "\r", "\n", "\t"),
    *("@name", "#12", "GH-12", "https://a.b", "www.a.b", "mailto:a@b.c", "a@b.cd", "!7", "\\"),
    *("<script>", "</script>", "<!--", "-->", "]]>", "&amp;", "{{ 7 * 7 }}", "{% x %}", '"', "'"),
    *("`", "*", "_", "|", "- ", "1. ", "# ", "> ", "===", "~~~", "[a](b)", "![a](b)", "    x"),
    *("=1+1", "+1", "-1", "@SUM(A1)", "%0A", ",", ";", ":", "\u202e", "\ud800", "\u2028", "é"),
)
TEXTS = st.lists(
    st.one_of(st.sampled_from(MEANING), st.characters(), st.sampled_from(" :aA1")), max_size=12
).map("".join)
# What tables and JSON can hold at all.
STORED_TEXTS = TEXTS.map(lambda text: text.encode(errors="replace").decode())
MANY = settings(max_examples=60, deadline=None)


@given(TEXTS)
@MANY
def test_an_error_is_one_printable_line(text: str) -> None:
    for error in (CommandError(text), CaptureError("f", text, expected=text), ValueError(text)):
        assert describe(error).replace("\N{NO-BREAK SPACE}", "").isprintable()
        assert len(describe(error)) <= LONGEST_LINE + 1


@given(TEXTS, st.integers(10, 40))
@MANY
def test_shortening_keeps_both_ends(text: str, most: int) -> None:
    short = shortened(text, most)
    assert len(short) <= max(most, 0)
    assert short == text or (short[:3] == text[:3] and short[-3:] == text[-3:])


# -- terminals and workflow commands ---------------------------------------------------------------

# As GitHub's runner recognises its commands: at the start of a line, behind blanks, or anywhere.
COMMAND = re.compile(
    r"^\s*::\s*(error|warning|add-mask|set-env|group|stop-commands)\b", re.I | re.M
)


class Captured(io.StringIO):
    encoding = "utf-8"


@given(TEXTS, st.integers(60, 90), st.integers(0, 90))
@example("x " * 39 + "::error::wrapped to the start of a line", 79, 0)
@MANY
def test_a_terminal_shows_what_is_there_and_obeys_nothing(
    text: str, width: int, before: int
) -> None:
    stream = Captured()
    console = Terminal(OutputStream(stream))
    console.width = width
    console.print(Text(f"{'x' * before} {text}"))
    console.print(f"{'x' * before} {text}")
    shown = stream.getvalue()
    for line in shown.split("\n"):
        assert line.replace("\N{NO-BREAK SPACE}", "").isprintable()
    assert not COMMAND.search(shown)
    assert not re.search(r"##\w*\[", shown)


@given(TEXTS)
@MANY
def test_only_commands_are_changed(text: str) -> None:
    if "::" not in text and "##" not in text:
        assert without_commands(text) == text
    assert without_commands(text).replace(" ", "") == text.replace(" ", "")


def test_names_of_the_language_are_no_commands() -> None:
    assert without_commands("at::native::add\n::native::mul") == "at::native::add\n::native::mul"


@given(TEXTS, TEXTS)
@MANY
def test_a_workflow_command_is_one_line_with_its_values(title: str, message: str) -> None:
    line = workflow_command("error", {"title": title}, [message])
    assert len(line.splitlines()) == 1
    match = re.fullmatch(r"::error title=([^,:]*)::(.*)", line)
    assert match is not None
    assert _unescaped(match[1]) == printable(title)
    assert _unescaped(match[2]) == printable(message)


def _unescaped(value: str) -> str:
    for code, letter in (("%2C", ","), ("%3A", ":"), ("%25", "%")):
        value = value.replace(code, letter)
    return value


# -- documents -------------------------------------------------------------------------------------

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# What GitHub and GitLab link in the text that a document shows.
LINKED = re.compile(r"[@#!$%&~^](?=\w)|\bGH-\d|\b[a-z][a-z0-9+.-]*://|\bwww\.", re.IGNORECASE)


@given(TEXTS)
@example("\\@name \\#12 https://example.org www.example.org a@example.org")
@MANY
def test_markdown_shows_the_text_and_links_nothing(text: str) -> None:
    expected = printable(text).replace(INVISIBLE_SPACE, "").strip()
    for document in (f"{escaped(text)}\n", f"| a |\n| --- |\n| {escaped(text)} |\n"):
        tokens = MARKDOWN.parse(document)
        kinds = {token.type.partition("_")[0] for token in tokens}
        assert kinds <= {"paragraph", "inline", "table", "thead", "tbody", "tr", "th", "td"}
        inline = [token for token in tokens if token.type == "inline"]
        children = inline[-1].children or () if inline else ()
        assert {child.type for child in children} <= {"text", "text_special"}
        shown = "".join(child.content for child in children)
        assert shown.replace(INVISIBLE_SPACE, "").strip() == expected
        assert not LINKED.search(shown)


@given(TEXTS)
@MANY
def test_xml_holds_the_text(text: str) -> None:
    element = ET.Element("a", {"b": printable(text)})
    element.text = printable(text)
    back = ET.fromstring(ET.tostring(element, encoding="unicode"))
    assert back.get("b") == (back.text or "") == printable(text)


@given(st.lists(STORED_TEXTS, min_size=1, max_size=4))
@MANY
def test_a_spreadsheet_computes_no_cell(texts: list[str]) -> None:
    content = as_csv(pl.DataFrame({"name": texts, "value": [-1.5] * len(texts)}))
    rows = list(csv.reader(io.StringIO(content.decode(), newline="")))
    for (name, value), text in zip(rows[1:], texts, strict=True):
        assert not re.match(r"[=+\-@\t\r]", name) or re.fullmatch(r"-?[0-9.]+", name)
        assert name.removeprefix("'") == text.removeprefix("'")
        assert value == "-1.5"


class _Shown(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.data = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.data += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


@given(TEXTS)
@MANY
def test_html_shows_the_text(text: str) -> None:
    template = make_environment().from_string('<p title="{{ text }}">{{ text|printable }}</p>')
    page = _Shown()
    page.feed(template.render(text=text))
    page.close()
    assert page.tags == ["p"]
    assert page.data == printable(text)


class _Named(msgspec.Struct):
    name: str


@given(STORED_TEXTS)
@MANY
def test_json_in_a_page_is_the_text_and_ends_no_script(text: str) -> None:
    embedded = str(embedded_json(_Named(text)))
    assert not re.search(r"[<>&\u2028\u2029]", embedded)
    assert json.loads(embedded) == {"name": text}
