"""The line that `gpuprof run` keeps on a terminal, beside a program that writes there too."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from terminal_screen import TerminalScreen, set_size
from training_script import FEW, write

# What the line writes begins by saving the cursor and ends by restoring it.
LINE = re.compile(rb"\x1b7[^\x1b]*(?:\x1b\[[^\x1b]*)*\x1b8(?:\x1bD\x1b\[A)?")


def test_the_line_shows_how_far_the_program_is_and_leaves_its_output_alone(
    tmp_path: Path, gpuprof_environment: dict[str, str]
) -> None:
    script = write(
        tmp_path,
        r"""
        print("without an end", end="", flush=True)
        time.sleep(0.6)
        print("...\n\x1b[31mred\x1b[m", flush=True)
        for number in range(40):
            print("row", number)
            sys.stderr.write(f"{number} %\r")
        train(9)
        while not os.path.exists('out.gpuprof/manifest.json'):
            train(1)
            time.sleep(0.02)
        for _ in range(50):
            train(1)
            time.sleep(0.02)
        print("last")
        """,
    )
    ours, theirs = pty.openpty()
    set_size(ours)
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuprof", "run", *FEW, "-o", "out.gpuprof", script],
        cwd=tmp_path,
        env={**gpuprof_environment, "TERM": "xterm", "LC_ALL": "C.UTF-8", "CI": ""},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    terminal = TerminalScreen()
    seen: list[str] = []

    def look() -> None:
        if terminal.rows[-1].startswith("gpuprof 0:"):
            seen.append(terminal.rows[-1])

    terminal.read_all(ours, look)
    os.close(ours)
    assert process.wait() == 0
    assert re.search(r"^gpuprof 0:0\d · before torch is imported$", "\n".join(seen), re.M)
    known = [row for row in seen if "MFU" in row]
    assert re.fullmatch(
        r"gpuprof 0:\d\d · after the profile · step \d+ · \S+ ms a step · MFU \S+%", known[-1]
    )
    progress = b"".join(b"row %d\r\n%d %%\r" % (number, number) for number in range(40))
    expected = b"without an end...\r\n\x1b[31mred\x1b[m\r\n" + progress + b"last\r\n"
    assert LINE.sub(b"", terminal.written).startswith(expected)
    # Nothing of it stays, on the screen or above, and the whole screen scrolls again.
    everything = terminal.scrolled_away + terminal.rows
    assert not any("gpuprof 0:" in row for row in everything)
    assert everything[:4] == ["without an end...", "red", "row 0", "row 1"]
    assert terminal.screen.margins is None
    assert everything[: everything.index("last")][-1] == "row 39"
