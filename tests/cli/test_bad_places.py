"""Places that cannot be read or written: every command says so in one line and leaves nothing."""

import argparse
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from recorded_gate import recorded_gate

from gpuprof.collectors.files import writing
from gpuprof.profiler.cli import COMMANDS, main, make_parser

CAPTURE = str(Path(__file__).parents[1] / "data" / "captures" / "h100_llama_block")
TRACE = str(Path(__file__).parents[1] / "data" / "kineto" / "nested-ops.json")

# A model and a job to plan.
MODEL = ("--layers=2", "--hidden=64", "--heads=4", "--ffn=256", "--vocabulary=100")
JOB = ("--sequence=8", "--batch=8")
# What each command writes, with {} for the place. None of them gets as far as measuring.
WRITERS = {
    "run -o": ("run", "-f", "-o", "{}.gpuprof", "-c", "print('ran')"),
    "snap -o": ("snap", "--attach", str(os.getpid()), "-f", "-o", "{}.gpuprof"),
    "analyze -o": ("analyze", "-f", TRACE, "-o", "{}.gpuprof"),
    "analyze --to-chrome": ("analyze", "-f", CAPTURE, "--to-chrome", "{}.json"),
    "report -o": ("report", "-f", CAPTURE, "-o", "{}.md"),
    "export -o": ("export", CAPTURE, "-o", "{}"),
    "repro -o": ("repro", "-f", CAPTURE, "aten::mm", "-o", "{}.py"),
    "compare -o": ("compare", "-f", CAPTURE, CAPTURE, "-o", "{}.json"),
    "bench -o": ("bench", "-f", "-o", "{}.gpuprof"),
    "bench --json": ("bench", "-f", "-o", "o", "--json", "{}.json"),
    "bench --file -o": ("bench", "-f", "--file", "mine.py", "-o", "{}.html"),
    "bench --claims --json": ("bench", "-f", "--claims", "cuda-l2", "--json", "{}.json"),
    "calibrate --json": ("calibrate", "-f", "--json", "{}.json"),
    "gate -o": ("gate", "-f", "-a", "a.py", "-b", "b.py", "-o", "{}"),
    "gate --junit": ("gate", "-f", "-a", "a.py", "-b", "b.py", "--junit", "{}.xml"),
    "gate results -o": ("gate", "results", "-f", "--base", "a", "--head", "b", "-o", "{}"),
    "gate selftest --json": ("gate", "selftest", "-f", "--json", "{}.json"),
    "gate selftest --recording": ("gate", "selftest", "--recording", "{}.json"),
    "baseline save": ("baseline", "save", "v1", "--from", "gate.json", "--folder", "{}"),
    "history add": ("history", "add", "gate.json", "--db", "{}.sqlite"),
    "history export": ("history", "export", "{}.parquet", "-f"),
    "history plot": ("history", "plot", "{}.html", "-f"),
}
# What each command reads.
READERS = {
    "run": ("run", "{}"),
    "bench --file": ("bench", "--file", "{}"),
    "analyze": ("analyze", "{}"),
    "summary": ("summary", "{}"),
    "report": ("report", "{}", "-o", "o.md"),
    "export": ("export", "{}", "-o", "o"),
    "serve": ("serve", "{}"),
    "mcp": ("mcp", "{}"),
    "explain": ("explain", "{}", "aten::mm"),
    "repro": ("repro", "{}", "aten::mm", "-o", "o.py"),
    "compare, base": ("compare", "{}", CAPTURE),
    "compare, head": ("compare", CAPTURE, "{}"),
    "mfu": ("mfu", "{}"),
    "plan": ("plan", "{}", *JOB),
    "plan --capture": ("plan", *MODEL, *JOB, "--capture", "{}"),
    "plan --calibration": ("plan", *MODEL, *JOB, "--calibration", "{}"),
    "plan --links": ("plan", *MODEL, *JOB, "--device=H100 SXM5", "--links", "{}"),
    "bench --claims": ("bench", "--claims", "{}/claims.toml"),
    "bench --measured": ("bench", "--claims", "cuda-l2", "--measured", "{}"),
    "gate --config": ("gate", "--config", "{}", "--base", "main"),
    "gate selftest --recording": ("gate", "selftest", "--recording", "{}"),
    "gate results": ("gate", "results", "--base", "{}", "--head", "b"),
    "gate --baseline": ("gate", "--baseline", "{}/v1.json.gz"),
    "baseline save --from": ("baseline", "save", "v1", "--from", "{}"),
    "baseline bless": ("baseline", "bless", "v1", "--reason", "r", "--folder", "{}"),
    "baseline pin": ("baseline", "pin", "v1", "--folder", "{}"),
    "history add": ("history", "add", "{}"),
    "history show": ("history", "show", "--db", "{}"),
}
# The actions that choose from the targets of gpuprof.toml, beside the gate.
SELECTING = ("gate calibrate", "gate plan", "gate selftest", "gate results", "baseline")
TOO_LONG = "n" * 300
PLACES: dict[str, str] = {
    "no such folder": "absent/name",
    "a file in a folder's place": "file/name",
    "a name that is too long": TOO_LONG,
    "a folder where nobody writes": "/proc/name",
    "a loop of links": "loop/name",
}
# A read there fails with EIO.
UNREADABLE = "/proc/self/mem"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: with a gate's result, its history, and what is in the way."""
    monkeypatch.chdir(tmp_path)
    for name in ("temporary", "cache", "configuration"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    (tmp_path / "gate.json").write_bytes(msgspec.json.encode(recorded_gate(3e6)))
    assert main(["history", "add", "gate.json"]) == 0
    (tmp_path / "gpuprof.toml").write_text('[[target]]\nscript = "a.py"\n')
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


@pytest.fixture
def refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[tuple[str, ...], str], str]:
    """Run a command that must fail and change nothing; returns what it said."""
    capsys.readouterr()

    def refused(arguments: tuple[str, ...], place: str) -> str:
        before = tree(folder)
        code = main([part.format(place) for part in arguments])
        said = capsys.readouterr().err
        # The stages of what is under way come before it.
        *stages, line = said.splitlines()
        assert all(stage.startswith("gpuprof: Reading") for stage in stages), said
        assert line.startswith("gpuprof: "), said
        assert "Traceback" not in said
        assert "Errno" not in said
        assert ".tmp" not in said
        assert code in (1, 2, 3)
        assert tree(folder) == before
        return line

    return refused


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_tables_have_every_command_that_takes_a_place() -> None:
    rows = (*WRITERS.values(), *READERS.values())
    assert {row[0] for row in rows} == {command.name for command in COMMANDS} - {
        "doctor",
        "completion",
    }
    options = dict(path_options(make_parser()))
    tried = {
        # The longest name: a row of `gate selftest` is none of `gate`.
        f"{max((n for n in options if ' '.join(row).startswith(n)), key=len)} {word}"
        for row in rows
        for word in row
    }
    missing = {f"{name} {option}" for name, own in options.items() for option in own} - tried
    # Read by the same function as gate's, and written by the same as --junit.
    forms = {f"gate --{form}" for form in ("json", "html", "markdown", "comment")}
    forms |= {f"gate results --{form}" for form in ("json", "html", "markdown", "comment", "junit")}
    configurations = {f"{name} --config" for name in SELECTING}
    assert missing == forms | configurations


def path_options(
    parser: argparse.ArgumentParser, name: str = ""
) -> Iterator[tuple[str, list[str]]]:
    """The options of each command and action that take a path; the long or else only name."""
    yield (
        name,
        [
            "-o" if "-o" in action.option_strings else action.option_strings[-1]
            for action in parser._actions
            if action.type is Path and action.option_strings
        ],
    )
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield from path_options(inner, f"{name} {word}".strip())


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        pytest.param(arguments, place, id=f"{writer}, {what}")
        for writer, arguments in WRITERS.items()
        for what, place in PLACES.items()
        # These make their folder.
        if not (what == "no such folder" and "{}" in arguments)
    ],
)
def test_a_place_that_cannot_be_written_is_refused_in_one_line(
    arguments: tuple[str, ...], place: str, refused: Callable[[tuple[str, ...], str], str]
) -> None:
    said = refused(arguments, place)
    assert place in said or "is not a folder" in said


@pytest.mark.parametrize("arguments", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_is_found_before_any_work(
    arguments: tuple[str, ...], refused: Callable[[tuple[str, ...], str], str]
) -> None:
    with full_disk():
        assert "cannot be written: File too large; choose another" in refused(arguments, "name")


@pytest.mark.parametrize(
    "arguments",
    [row for name, row in WRITERS.items() if row[0] in ("analyze", "report", "compare", "history")],
    ids=" ".join,
)
def test_a_disk_that_fills_meanwhile_leaves_no_half_written_file(
    arguments: tuple[str, ...],
    refused: Callable[[tuple[str, ...], str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing, "_TRIAL_BYTES", 0)
    with full_disk():
        assert "name" in refused(arguments, "name")


@pytest.mark.parametrize(
    "arguments",
    [row for row in WRITERS.values() if not any(part in ("{}.gpuprof", "{}") for part in row)],
    ids=" ".join,
)
def test_a_folder_in_a_files_place_is_refused_also_with_force(
    arguments: tuple[str, ...], folder: Path, refused: Callable[[tuple[str, ...], str], str]
) -> None:
    for suffix in (".json", ".md", ".py", ".xml", ".sqlite", ".parquet", ".html"):
        (folder / f"name{suffix}").mkdir()
    assert "name" in refused(arguments, "name")


@pytest.mark.parametrize("place", [*PLACES.values(), UNREADABLE], ids=[*PLACES, "unreadable"])
@pytest.mark.parametrize("arguments", READERS.values(), ids=READERS)
def test_what_cannot_be_read_is_told_in_one_line(
    arguments: tuple[str, ...], place: str, refused: Callable[[tuple[str, ...], str], str]
) -> None:
    said = refused(arguments, place)
    assert place in said or "is not a folder" in said
