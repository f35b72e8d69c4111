"""Every command in every terminal: encodings, widths, without colours, into a closed pipe."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.profiler.cli import COMMANDS, main
from gpuprof.profiler.gate.baseline import BaselineFolder, baseline_of
from gpuprof.profiler.gate.history import History
from gpuprof.roofline.gate.history import values_of
from gpuprof.roofline.gate.measurement import Measurement
from gpuprof.roofline.gate.result import GATE_FILE, GateResult, SideInfo
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.suite import MeasuredProcess

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
CAPTURE = str(CAPTURES / "h100_llama_block")
OTHER = str(CAPTURES / "h200_llama_block")
COMMAND_LINES = {
    "summary": ("summary", CAPTURE),
    "compare": ("compare", CAPTURE, OTHER),
    "mfu": ("mfu", "--params", "7B", "--device", "H100 SXM", "--tokens-per-second", "9k"),
    "mfu beside": ("mfu", CAPTURE),
    "analyze": ("analyze", CAPTURE),
    "doctor": ("doctor",),
    "calibrate": ("calibrate", "--device", "cpu"),
    "bench": ("bench", "softmax", "--device", "cpu", "--sizes", "4x64", "--seconds", "0.01"),
    "bench --check": ("bench", "softmax", "--device", "cpu", "--sizes", "4x64", "--check"),
    "bench --list": ("bench", "--list"),
    "bench --claims": ("bench", "--claims", "public-articles"),
    "baseline": ("baseline", "list"),
    "history": ("history", "show"),
    "gate": ("gate", "--dry-run", "-a", "train.py", "-b", "train.py --fast"),
}
# Their output is the same in each run; doctor looks at the machine, bench measures it.
STEADY = tuple(name for name in COMMAND_LINES if name not in ("doctor", "bench", "bench --check"))
# A sentence below a table, a path and a command that is there to be copied are lines of their own.
_UNBROKEN = re.compile(r"gpuprof |Kept in |Change points need|[\w.]+(?: --fast)?: \(cd ")
_FIGURE = re.compile(r"(?<!\S)[-+±]?(?:\d[\d,.]*)(?:%|[eE][-+]?\d+)?(?!\S)")

Printed = Callable[..., tuple[int, str]]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache_folder: Path) -> Printed:
    """Run a command in this process, in a folder with a baseline and a history.

    Its stdout has no way to write what it lacks.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_folder))
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    result = gate_result()
    folder = BaselineFolder(tmp_path / "gpuprof-baselines")
    folder.save(baseline_of(result, "v1"))
    folder.pin("v1")
    History(tmp_path / "gpuprof-history.sqlite").add(values_of(result, commit="3f2a91c"))
    (tmp_path / "train.py").touch()
    (tmp_path / GATE_FILE).write_bytes(msgspec.json.encode(result))

    def run(*arguments: str, encoding: str = "utf-8", **environment: str) -> tuple[int, str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        content = io.BytesIO()
        stream = io.TextIOWrapper(content, encoding=encoding, errors="strict", newline="\n")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            status = main(arguments)
        return status, content.getvalue().decode(encoding)

    return run


def gate_result() -> GateResult:
    device = Device(index=0, kind="cuda", name="NVIDIA H100 80GB HBM3", multiprocessors=132)
    head = SideInfo(label="head", commit="3f2a91c7", fingerprint=Fingerprint(devices=(device,)))
    processes = tuple(
        MeasuredProcess(
            target="train",
            side="B",
            pair=pair,
            first=True,
            measurements={"train/µ-step": Measurement(samples_ns=(2_000_000 + pair,) * 5)},
        )
        for pair in range(5)
    )
    return GateResult(
        tool_version="0",
        created_ns=1_800_000_000_000_000_000,
        base=SideInfo(label="base"),
        head=head,
        settings=RuleSettings(),
        judgements=(),
        processes=processes,
    )


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
@pytest.mark.parametrize("name", COMMAND_LINES)
def test_a_terminal_that_lacks_characters_is_no_error(
    printed: Printed, name: str, encoding: str
) -> None:
    status, text = printed(*COMMAND_LINES[name], encoding=encoding, COLUMNS="60")
    assert status == 0
    assert text
    assert "?" not in text
    assert not [line for line in text.splitlines() if line != line.rstrip()]


@pytest.mark.parametrize("name", STEADY)
def test_a_narrow_terminal_shows_the_figures_of_a_wide_one(printed: Printed, name: str) -> None:
    _, wide = printed(*COMMAND_LINES[name], COLUMNS="200")
    _, narrow = printed(*COMMAND_LINES[name], COLUMNS="60")
    for text, columns in ((wide, 200), (narrow, 60)):
        long = [line for line in text.splitlines() if len(line) > columns]
        assert [line for line in long if not _UNBROKEN.match(line)] == []
        assert not [line for line in text.splitlines() if line != line.rstrip()]
    assert set(_FIGURE.findall(narrow)) <= set(_FIGURE.findall(wide))


@pytest.mark.parametrize("name", ["summary", "compare", "bench --claims", "history"])
def test_colours_can_be_forced_and_forbidden(printed: Printed, name: str) -> None:
    plain = printed(*COMMAND_LINES[name], COLUMNS="100")[1]
    assert "\x1b" not in plain
    forced = printed(*COMMAND_LINES[name], COLUMNS="100", FORCE_COLOR="1")[1]
    assert "\x1b" in forced
    forbidden = printed(*COMMAND_LINES[name], COLUMNS="100", FORCE_COLOR="1", NO_COLOR="1")[1]
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", forbidden)
    assert re.sub(r"\x1b\[[0-9;]*m", "", forced) == plain


@pytest.mark.parametrize("arguments", [("doctor",), COMMAND_LINES["mfu"], ("mfu", CAPTURE)])
def test_json_can_be_read_from_any_terminal(printed: Printed, arguments: tuple[str, ...]) -> None:
    content = io.BytesIO()
    stream = io.TextIOWrapper(content, encoding="ascii", errors="strict")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        assert main((*arguments, "--json")) == 0
    assert json.loads(content.getvalue().decode("utf-8"))


@pytest.mark.parametrize("name", ["", *(command.name for command in COMMANDS)])
def test_help_is_in_plain_characters(printed: Printed, name: str) -> None:
    with pytest.raises(SystemExit) as caught:
        printed(*([name] if name else []), "--help", encoding="ascii", COLUMNS="60")
    assert caught.value.code == 0


def run_with(arguments: tuple[str, ...], *, closed: str) -> tuple[int, bytes]:
    """The exit code of a real process with a pipe that nobody reads, and its other stream."""
    reading, writing = os.pipe()
    os.close(reading)
    other = "stderr" if closed == "stdout" else "stdout"
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gpuprof", *arguments],
            env={**os.environ, "PYTHONUNBUFFERED": ""},
            check=False,
            **{closed: writing, other: subprocess.PIPE},  # type: ignore[call-overload]
        )
    finally:
        os.close(writing)
    return done.returncode, getattr(done, other)


@pytest.mark.parametrize(
    "arguments",
    [("summary", CAPTURE), ("--help",), ("mfu", "--params", "7B", "--json"), ("bench", "--list")],
)
def test_a_closed_pipe_ends_a_command_without_a_word(arguments: tuple[str, ...]) -> None:
    assert run_with(arguments, closed="stdout") == (1, b"")


def test_what_nobody_hears_changes_no_exit_code(tmp_path: Path) -> None:
    missing = ("summary", str(tmp_path / "none"))
    assert run_with(missing, closed="stderr") == (main(missing), b"")
    command = f'"{sys.executable}" -m gpuprof summary "{CAPTURE}" >&-'
    done = subprocess.run(command, shell=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gpuprof", "summary", CAPTURE],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == b"gpuprof: stdout: No space left on device\n"


@pytest.mark.parametrize(
    "chosen", [{"PYTHONIOENCODING": "ascii"}, {"LANG": "C"}, {"LC_ALL": "C", "LANG": "C.UTF-8"}]
)
def test_a_real_process_in_ascii_draws_bars(chosen: dict[str, str]) -> None:
    locale = ("LANG", "LC_ALL", "LC_CTYPE", "PYTHONIOENCODING", "PYTHONUTF8")
    others = {name: value for name, value in os.environ.items() if name not in locale}
    done = subprocess.run(
        [sys.executable, "-m", "gpuprof", "summary", CAPTURE],
        env={**others, **chosen},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    assert b" ####" in done.stdout
    assert b"?" not in done.stdout
