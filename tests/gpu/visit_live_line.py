"""The live line of `gpuprof run`: does it show the GPU, and does a step pay for it?

    python tests/gpu/visit_live_line.py [--seconds N]

One launch-bound program runs on a terminal six times, in turns with the line and without (TERM is
"dumb"), and measures its own steps after the profiled ones. Printed are what the line said last and
the medians of both. Exits 1 where clock, power or MFU never shows, or where the fastest run with
the line is slower than the slowest without.
"""

import argparse
import fcntl
import os
import pty
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

PROGRAM = """
import statistics, sys, time, torch
import gpuprof
device = "cuda" if torch.cuda.is_available() else "cpu"
width = 1024 if device == "cuda" else 64
torch.set_num_threads(1)
weight = torch.randn(width, width, device=device)
x = torch.randn(64, width, device=device)
lengths, end = [], time.time() + float(sys.argv[1])
while time.time() < end:
    begun = time.perf_counter()
    for _ in range(100):
        y = torch.relu(x @ weight) + 0.5
    if device == "cuda":
        torch.cuda.synchronize()
    gpuprof.step()
    lengths.append(time.perf_counter() - begun)
last = lengths[len(lengths) // 2:]
print(f"own median {statistics.median(last) * 1e3:.5f} ms")
"""
ROWS, COLUMNS = 40, 160
SHOWN = {"clock": r"\d+ MHz", "power": r"\d+ W", "MFU": r"MFU <?[\d.]+%"}


def run(script: Path, seconds: float, *, line: bool) -> tuple[float, list[str]]:
    """The program's own median step in ms, and what the line said."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm" if line else "dumb", "CI": ""}
    output = script.with_suffix(".gpuprof")
    command = [sys.executable, "-m", "gpuprof", "run", "-f", "-o", str(output), str(script)]
    process = subprocess.Popen(
        [*command, str(seconds)], stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    written = b""
    try:
        while piece := os.read(ours, 65536):
            written += piece
    except OSError:
        # Linux says that the other end closed.
        pass
    os.close(ours)
    text = written.decode(errors="replace")
    if process.wait():
        raise RuntimeError(text[-4000:])
    own = re.search(r"own median ([\d.]+) ms", text)
    assert own is not None
    return float(own[1]), re.findall(r"gpuprof \d+:\d\d · [^\x1b]*", text)


def main() -> int:
    """Run all, print what was seen and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds = parser.parse_args().seconds
    medians: dict[bool, list[float]] = {True: [], False: []}
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "steps.py")
        script.write_text(PROGRAM)
        for turn in range(6):
            own_ms, lines = run(script, seconds, line=turn % 2 == 0)
            medians[turn % 2 == 0].append(own_ms)
            said += lines
    for line, lengths in medians.items():
        each = ", ".join(f"{length:.4f}" for length in lengths)
        kind = "with" if line else "without"
        print(f"{kind} the line: {statistics.median(lengths):.4f} ms ({each})")
    print("last said:", next((one for one in reversed(said) if "MFU" in one), said[-1:]))
    missing = [
        name for name, shape in SHOWN.items() if not any(re.search(shape, one) for one in said)
    ]
    print("never shown:", ", ".join(missing) or "nothing")
    slower = min(medians[True]) > max(medians[False])
    print("a step pays for the line" if slower else "no step pays for the line that can be seen")
    return int(bool(missing) or slower)


if __name__ == "__main__":
    sys.exit(main())
