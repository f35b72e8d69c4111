"""The line on the terminal: what it says, how it is drawn, and what the two processes share."""

import os
import pty
import signal
import subprocess
import sys
import time
import tty
from collections.abc import Iterator
from typing import TextIO

import msgspec
import pytest
from capture_builder import CaptureBuilder
from terminal_screen import TerminalScreen, set_size

from gpuprof.collectors.live.collector import LatestReading
from gpuprof.profiler.run.live_drawing import LiveDrawing, StepRate
from gpuprof.profiler.run.live_state import LiveReading, LiveState
from gpuprof.profiler.run.storing_messages import ShowLine
from gpuprof.reports.console import progress
from gpuprof.reports.console.bottom_line import BottomLine
from gpuprof.reports.live_line import LiveLine, live_line
from gpuprof.roofline.analysis import Utilization
from gpuprof.roofline.analyze import analyze

SECOND = 1_000_000_000
# Python 3.12 and later warn of a fork beside threads; the server that forks has none.
FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


def changed(line: LiveLine, **changes: object) -> LiveLine:
    return LiveLine(**{**vars(line), **changes})  # type: ignore[arg-type]


def test_what_is_unknown_is_left_out() -> None:
    assert live_line(LiveLine("starting", 3.9, 0, 0)) == "gpuprof 0:03 · before torch is imported"
    whole = LiveLine(
        "later", 3723, 1234, 1200, None, 12_340_000.0, 0.4126, 0, 1980, power_milliwatts=651_600
    )
    assert live_line(whole) == (
        "gpuprof 1:02:03 · after the profile · step 1234 · 12.3 ms a step · MFU 41.3% · "
        "GPU 0 1980 MHz 652 W"
    )
    no_power = changed(whole, power_milliwatts=None, mfu=None)
    assert live_line(no_power).endswith("12.3 ms a step · GPU 0 1980 MHz")
    assert live_line(changed(no_power, sm_clock_mhz=None)).endswith("12.3 ms a step")


def test_a_phase_counts_its_steps_until_it_takes_more_than_planned() -> None:
    texts = [
        live_line(LiveLine("timed", 9, 3 + done, done, planned_steps=10)) for done in (0, 4, 11)
    ]
    assert [text.split(" · ")[1] for text in texts] == ["timing", "timing 4/10", "timing"]


def test_profiled_steps_are_not_shown_with_the_length_that_the_profiler_gives_them() -> None:
    assert "a step" not in live_line(LiveLine("profiled", 9, 14, 1, 4, step_ns=5e6, mfu=0.3))


def test_the_other_side_reads_what_was_written_last() -> None:
    state = LiveState()
    other = LiveState(os.dup(state.descriptor))
    state.close_descriptor()
    assert other.read() == LiveReading("starting", 0, 0, 0)
    state.enter("searching")
    state.step("warmup", 1)
    # Better marks were found: the steps before were none.
    state.step("warmup", 1)
    state.step("warmup", 2)
    assert (other.read().phase, other.read().steps, other.read().steps_of_phase) == ("warmup", 2, 2)
    state.step("timed", 3)
    state.step("timed", 4)
    assert (other.read().steps, other.read().steps_of_phase) == (4, 1)
    state.sample([LatestReading(0, 300.0, 70_000.0), LatestReading(3, 1980.0, None)])
    assert (other.read().device, other.read().sm_clock_mhz) == (0, 300)
    state.sample([LatestReading(0, 300.0, 70_000.0), LatestReading(3, None, 650_000.4)])
    reading = other.read()
    assert (reading.device, reading.sm_clock_mhz, reading.power_milliwatts) == (3, None, 650_000)
    other.know_full_speed(2.5e6)
    assert state.read().full_speed_step_ns == 2_500_000


def test_the_step_time_is_the_mean_of_the_last_two_seconds_and_of_one_phase() -> None:
    rate = StepRate()

    def at(phase: str, steps: int, seconds: float) -> float | None:
        return rate.step_ns(LiveReading(phase, steps, 0, round(seconds * SECOND)))

    assert at("timed", 10, 1.0) is None
    assert at("timed", 10, 1.0) is None
    assert at("timed", 14, 2.0) == pytest.approx(SECOND / 4)
    assert at("later", 15, 2.3) is None
    # A second of slow steps, then fast ones: they are all that counts once it is long enough ago.
    assert at("later", 16, 3.3) == pytest.approx(SECOND)
    for tick in range(1, 17):
        last = at("later", 16 + 10 * tick, 3.3 + tick / 4)
    assert last == pytest.approx(SECOND / 40)
    # A step longer than the window.
    assert at("later", 177, 60.0) == pytest.approx(52.7 * SECOND)
    assert at("later", 178, 120.0) == pytest.approx(60 * SECOND)


@pytest.fixture
def terminal() -> Iterator[tuple[int, TextIO]]:
    """Both ends of one, as large as the emulated screen."""
    ours, theirs = pty.openpty()
    set_size(ours)
    with open(theirs, "w", encoding="utf-8") as stream:
        yield ours, stream
    os.close(ours)


def drawn(screen: TerminalScreen, descriptor: int) -> list[str]:
    os.set_blocking(descriptor, False)
    try:
        while True:
            screen.feed(os.read(descriptor, 65536))
    except BlockingIOError:
        return screen.rows


def test_what_others_write_scrolls_above_the_line(terminal: tuple[int, TextIO]) -> None:
    ours, stream = terminal
    screen, line = TerminalScreen(), BottomLine(stream, os.getpid())
    # The cursor is in the last row, behind a text, and colours are on.
    print(*range(24), "\x1b[32mgreen", sep="\n", end="", file=stream, flush=True)
    line.show("at work · " + "x" * 200)
    print(" and more\x1b[m\nnext", file=stream, flush=True)
    rows = drawn(screen, ours)
    assert rows[-4:-1] == ["green and more", "next", ""]
    assert rows[-1] == ("at work · " + "x" * 200)[:99]
    assert screen.screen.buffer[20][10].fg == "green"
    line.hide()
    print("end", file=stream, flush=True)
    assert drawn(screen, ours)[-4:] == ["green and more", "next", "end", ""]
    assert screen.scrolled_away == [str(number) for number in range(4)]


def test_a_terminal_that_has_grown_keeps_one_line(terminal: tuple[int, TextIO]) -> None:
    ours, stream = terminal
    screen, line = TerminalScreen(), BottomLine(stream, os.getpid())
    print("loss 1", end="\r", file=stream, flush=True)
    line.show("at work")
    drawn(screen, ours)
    set_size(ours, rows=30)
    screen.screen.resize(30)
    line.show("at work")
    rows = drawn(screen, ours)
    assert [row for row in rows if row] == ["loss 1", "at work"]
    assert rows[-1] == "at work"


def test_a_terminal_too_small_or_in_use_by_an_editor_is_left_alone(
    terminal: tuple[int, TextIO],
) -> None:
    ours, stream = terminal
    screen, line = TerminalScreen(), BottomLine(stream, os.getpid())
    set_size(ours, rows=4)
    line.show("at work")
    assert drawn(screen, ours) == [""] * 24
    set_size(ours)
    line.show("at work")
    tty.setcbreak(ours)
    print("\x1b[24;1Han editor's last row", end="", file=stream, flush=True)
    line.show("still at work")
    line.hide()
    assert drawn(screen, ours)[-2:] == ["", "an editor's last row"]
    assert screen.screen.margins is None


def test_a_terminal_of_ascii_gets_its_characters(
    terminal: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    ours, stream = terminal
    screen = TerminalScreen()
    BottomLine(stream, os.getpid()).show("12 µs · 4 W")
    assert drawn(screen, ours)[-1] == "12 us - 4 W"


@FORKS
@pytest.mark.parametrize("how", ["asked to", "killed"])
def test_the_line_goes_when_asked_and_when_the_program_is_killed(
    terminal: tuple[int, TextIO], how: str
) -> None:
    ours, stream = terminal
    program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    state = LiveState()
    drawing = LiveDrawing(ShowLine(state.descriptor, program.pid, {"timed": 10}), stream)
    screen = TerminalScreen()
    state.step("timed", 3)
    state.step("timed", 4)
    state.know_full_speed(SECOND)
    while "timing 1/10 · step 4" not in drawn(screen, ours)[-1]:
        time.sleep(0.05)
    if how == "asked to":
        drawing.stop()
        assert drawn(screen, ours)[-1] == ""
        program.kill()
    else:
        program.send_signal(signal.SIGKILL)
        while drawn(screen, ours)[-1]:
            time.sleep(0.05)
    program.communicate()
    drawing.stop()
    os.wait()
    assert screen.screen.margins is None


@FORKS
def test_mfu_is_known_from_the_profiled_steps(terminal: tuple[int, TextIO]) -> None:
    _, stream = terminal
    state = LiveState()
    drawing = LiveDrawing(ShowLine(state.descriptor, os.getpid(), {}), stream)
    analysis = analyze(CaptureBuilder().build())
    drawing.know(analysis)
    assert state.read().full_speed_step_ns is None
    use = Utilization(
        precision="bf16",
        model_flops=8 * 10**12,
        model_flops_causal=8 * 10**12,
        step_ns=20_000_000,
        flops_per_s=4e14,
        mfu=0.4,
    )
    drawing.know(msgspec.structs.replace(analysis, utilization=use))
    drawing.stop()
    os.wait()
    # 8 TFLOP at the peak of 1 PFLOP/s.
    assert state.read().full_speed_step_ns == 8_000_000


@pytest.mark.parametrize(
    ("variables", "moves"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
        ({"TERM": "xterm", "CI": "true"}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True),
    ],
)
def test_only_a_persons_terminal_has_lines_that_move(
    terminal: tuple[int, TextIO],
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    moves: bool,
) -> None:
    for name in ("TERM", "CI", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", terminal[1])
    assert progress.can_move() is moves
    with open(os.devnull, "w") as nowhere:
        monkeypatch.setattr(sys, "stderr", nowhere)
        assert not progress.can_move()
