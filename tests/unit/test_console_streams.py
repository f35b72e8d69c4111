"""reports.console: every terminal gets what it can show, whole."""

import ast
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

import pytest
from rich.box import SIMPLE_HEAD
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpuprof.collectors.errors import CommandError
from gpuprof.reports.console import streams
from gpuprof.reports.console.characters import drawable
from gpuprof.reports.console.progress import showing_parts, showing_stages
from gpuprof.reports.console.streams import NoteStream, OutputStream
from gpuprof.reports.console.terminal import Terminal


class Stream(io.TextIOWrapper):
    """A stream of some encoding that raises for a character it lacks."""

    def __init__(self, encoding: str = "utf-8", *, terminal: bool = False) -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, encoding=encoding, errors="strict", newline="\n")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def text(self) -> str:
        self.flush()
        return self.bytes.getvalue().decode(self.encoding)


class Failing(io.StringIO):
    """A stream that fails as the operating system lets it."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self._error = error
        self.attempts = 0

    def write(self, text: str) -> int:
        self.attempts += 1
        raise self._error


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    # `shown` changes it.
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")


def figures(
    names: Iterable[str] = ("aten::mm", "a_rather_long_name_of_a_kernel<128, 64>"),
) -> Table:
    """A table as reports have them: a name that is shortened, figures, and words that wrap."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("Kernel", no_wrap=True, max_width=50)
    for head in ("Time", "Base → head", "Change ±", "Share"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("What it is")
    for name in names:
        cells = ("12.34 µs", "123.4 µs → 125.6 µs", "+1.8%", "100.0%")
        table.add_row(name, *cells, "some words that may wrap, and averylongwordthatmaynot")
    return table


def shown(
    content: object, encoding: str = "utf-8", *, terminal: bool = False, columns: int = 80
) -> str:
    os.environ["COLUMNS"] = str(columns)
    stream = Stream(encoding, terminal=terminal)
    Terminal(OutputStream(stream)).print(content)
    return stream.text()


@pytest.mark.parametrize(
    ("encoding", "drawn"),
    [
        ("ascii", "12 us -> 13 us +-2% - ###  4 096 ?"),
        ("cp1252", "12 µs -> 13 µs ±2% · ###  4\N{NO-BREAK SPACE}096 ?"),
        ("utf-8", "12 µs → 13 µs ±2% · ███  4\N{NO-BREAK SPACE}096 \N{SNOWMAN}"),
    ],
)
def test_what_an_encoding_lacks_is_drawn_in_ascii(encoding: str, drawn: str) -> None:
    text = "12 µs → 13 µs ±2% · ███  4\N{NO-BREAK SPACE}096 \N{SNOWMAN}"
    assert drawable(text, encoding) == drawn


def test_half_of_a_surrogate_pair_as_in_undecodable_paths_is_a_question_mark() -> None:
    assert drawable("caf\udce9.py", "utf-8") == "caf?.py"


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
@pytest.mark.parametrize("columns", range(60, 201, 7))
def test_a_table_never_cuts_a_figure(encoding: str, columns: int) -> None:
    text = shown(figures(), encoding, columns=columns)
    for figure in ("12.34 µs", "123.4 µs → 125.6 µs", "+1.8%", "100.0%"):
        assert text.count(drawable(figure, encoding)) == 2, text
    heads = text.splitlines()[0]
    assert drawable("Base → head", encoding) in heads
    assert drawable("Change ±", encoding) in heads
    assert not any(line.endswith(" ") for line in text.splitlines())


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_columns_stay_in_line_where_characters_are_drawn_longer(encoding: str) -> None:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("Time", no_wrap=True)
    table.add_column("Next", no_wrap=True)
    table.add_row("1 → 2", "x")
    table.add_row(Text("123456789", "bold"), Text("x"))
    _, _, first, second = shown(table, encoding).splitlines()
    assert first.index("x") == second.index("x")


def test_a_table_that_has_room_is_as_wide_as_before() -> None:
    lines = shown(figures(["aten::mm"]), columns=200).splitlines()
    assert lines[2] == (
        "aten::mm   12.34 µs   123.4 µs → 125.6 µs      +1.8%   100.0%"
        "   some words that may wrap, and averylongwordthatmaynot"
    )


def test_a_shortened_name_gets_what_the_figures_leave() -> None:
    lines = {columns: shown(figures(), columns=columns).splitlines() for columns in (80, 200)}
    assert any("…" in line for line in lines[80])
    assert any("a_rather_long_name_of_a_kernel<128, 64>" in line for line in lines[200])


def test_colours_follow_the_character_that_they_were_of() -> None:
    line = Text("1 → 2 ").append("µ", "bold red").append("s")
    assert "\x1b[1;31mu\x1b[0ms" in shown(line, "ascii", terminal=True)


def test_text_is_no_markup_and_a_padded_table_is_fitted_too() -> None:
    assert shown("[bold]a[/bold] :smile: µ", "ascii") == "[bold]a[/bold] :smile: u\n"
    table = Table.grid()
    table.add_row("█ [x]")
    assert shown(Padding(table, (0, 0, 0, 2)), "ascii") == "  # [x]\n"


@pytest.mark.parametrize(
    ("settings", "coloured"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_a_terminal_has_colours_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], coloured: bool
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[31m" in shown(Text("red", "red"), terminal=True)) is coloured


def test_a_file_has_colours_only_where_they_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(Text("red", "red")) == "red\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[31m" in shown(Text("red", "red"))


def test_blanks_go_also_where_colours_are_switched_in_them() -> None:
    assert streams.without_trailing_blanks("a  \x1b[0m \nb \x1b[1mc\x1b[0m\n") == (
        "a\x1b[0m\nb \x1b[1mc\x1b[0m\n"
    )


@pytest.mark.parametrize(
    ("columns", "width"), [("1", 60), ("60", 60), ("132", 132), ("999", 200), ("0", 80), ("x", 80)]
)
def test_the_width_is_that_of_columns_within_what_tables_are_made_for(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    def no_terminal(descriptor: int) -> os.terminal_size:
        raise OSError

    monkeypatch.setattr(os, "get_terminal_size", no_terminal)
    monkeypatch.setenv("COLUMNS", columns)
    assert Terminal(OutputStream(Stream())).width == width


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_a_dumb_terminal_is_as_wide_as_it_says(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "70")
    assert Terminal(OutputStream(Stream(terminal=True))).width == 70


def test_a_broken_pipe_ends_a_command_and_a_full_disk_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout", Failing(BrokenPipeError()))
    with pytest.raises(BrokenPipeError):
        streams.write_line("x")
    with pytest.raises(BrokenPipeError):
        Terminal(OutputStream(Failing(BrokenPipeError()))).print("x")
    monkeypatch.setattr("sys.stdout", Failing(OSError(28, "No space left on device")))
    with pytest.raises(CommandError, match="stdout: No space left on device"):
        streams.write_line("x")


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(5, "Input/output error")])
def test_what_is_said_on_stderr_is_lost_where_nobody_listens(
    monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    lost = Failing(error)
    monkeypatch.setattr("sys.stderr", lost)
    streams.write_note("x")
    assert lost.attempts == 1
    Terminal(NoteStream(lost)).print("x")
    assert lost.attempts > 1


def closed() -> TextIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [None, closed()])
def test_a_stream_that_is_not_there_is_no_error(
    monkeypatch: pytest.MonkeyPatch, stream: TextIO | None, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    streams.write_note("x")
    monkeypatch.setattr("sys.stdout", None)
    streams.write_line("x")
    streams.write_bytes(b"x")
    streams.flush()
    Terminal(OutputStream(None)).print("x")
    assert capfd.readouterr() == ("", "")


def test_json_is_utf_8_whatever_the_terminal_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream("ascii")
    monkeypatch.setattr("sys.stdout", stream)
    streams.write_line("first")
    streams.write_bytes('"µs"'.encode())
    assert stream.bytes.getvalue() == b"first\n" + '"µs"'.encode()


@pytest.mark.parametrize(
    ("command", "hidden", "said"),
    [
        ("gpuprof gate", False, "gpuprof gate: 3/7 a\n"),
        ("", False, ""),
        ("gpuprof gate", True, ""),
    ],
)
def test_progress_into_a_file_is_lines_even_where_colours_are_forced(
    monkeypatch: pytest.MonkeyPatch, command: str, hidden: bool, said: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = Stream("ascii")
    monkeypatch.setattr("sys.stderr", stream)
    with showing_parts(command, hidden=hidden) as show:
        show("a", 3, 7)
    with showing_stages("Calibrating") as show_stage:
        show_stage("DRAM")
    assert stream.text() == said


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_progress_on_a_terminal_moves_in_characters_that_it_has(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    stream = Stream(encoding, terminal=True)
    monkeypatch.setattr("sys.stderr", stream)
    with showing_parts("gpuprof gate") as show:
        show("a → b", 3, 7)
    with showing_stages("Calibrating") as show_stage:
        show_stage("DRAM")
    text = stream.text()
    assert "3/7" in text
    assert "Calibrating" in text
    assert "?" not in text.replace("\x1b[?25", "")


def test_there_is_one_way_to_a_terminal() -> None:
    """No other `Console(...)` and no `print(...)` in what commands run."""
    root = Path(__file__).parents[2]
    others = [
        f"{file.relative_to(root)}:{node.lineno}"
        for folder in ("profiler", "reports", "roofline", "collectors", "reference_kernels")
        for file in sorted((root / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in ("Console", "print")
        and ast.unparse(node.func) in ("print", "Console", "rich.print", "rich.console.Console")
    ]
    assert others == []


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LANG": "C"}, True),
        # As python makes of it before our code runs.
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "POSIX"}, True),
        ({"LANG": "de_DE.UTF-8", "LC_CTYPE": "C"}, True),
        ({"LANG": "C", "LC_ALL": "C.UTF-8"}, False),
        ({"LANG": "C.UTF-8"}, False),
        ({"LANG": "C", "PYTHONUTF8": "1"}, False),
        ({"LANG": "C", "PYTHONIOENCODING": "utf-8"}, False),
        # Nobody has chosen anything, as in a container.
        ({"LC_CTYPE": "C.UTF-8"}, False),
        ({}, False),
    ],
)
def test_who_chooses_the_locale_c_reads_ascii(
    environment: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert streams.asks_for_ascii(environment) is expected
    for name in ("LANG", "LC_ALL", "LC_CTYPE", "PYTHONIOENCODING", "PYTHONUTF8"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert OutputStream(Stream("utf-8")).encoding == ("ascii" if expected else "utf-8")
    assert OutputStream(Stream("cp1252")).encoding == "cp1252"
