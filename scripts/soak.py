"""Run, analyze and gate in a loop, killed at random moments, and look for what stays behind.

    python scripts/soak.py [--seconds 3600] [--seed N]

Each command is killed with SIGKILL, SIGTERM, SIGHUP or SIGINT at a random moment of the time that
it takes, or left alone. After each: no process of its own lives on, also none that a gate measures,
and every capture under its final name can be read. After the next start of a command (here
`gpuprof gate`, which starts everything that cleans), which follows each killed gate and every
fourth other command: no temporary folder, no half-written capture, no worktree. The first thing
that is wrong is printed, and the script exits with 1; its folder stays then.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

from gpuprof.collectors import storage  # noqa: E402
from gpuprof.collectors.errors import CaptureError  # noqa: E402

SCRIPT: Final = """
import torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    model(torch.randn(32, 64)).sum().backward()
    optimizer.step()
"""
CONFIGURATION: Final = """
[gate]
pairs = [2]
[[target]]
script = "train.py"
warmup = 2
timed = 3
profiled = 1
[[budget]]
time = { regress = 1000.0 }
"""
_FEW: Final = ("--warmup", "2", "--timed", "3", "--profiled", "2", "--no-ceilings")
COMMANDS: Final = {
    "run": ("run", "-q", "-f", *_FEW, "-o", "run.gpuprof", "train.py"),
    "run to a page": ("run", "-q", "-f", *_FEW, "-o", "page.html", "train.py"),
    "analyze": ("analyze", "-f", "-o", "analyzed.gpuprof", "trace.json.gz"),
    "gate": ("gate", "--base", "HEAD", "--force"),
}
SIGNALS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, None)
# The latest moments are after the end of most.
_BEYOND_THE_END: Final = 1.1
_FIRST_GUESS_S: Final = 12.0
_TOLD_EVERY: Final = 5
# So long may a process that nobody waits for, such as the one that stores, go on by itself.
_SETTLING_S: Final = 60.0
# In the environment of all that we start.
_MARK: Final = "GPUPROF_SOAK"


@dataclass(frozen=True)
class Place:
    """Where the commands run, and where their temporary files lie."""

    work: Path
    temporary: Path

    def environment(self) -> dict[str, str]:
        """Of a command."""
        paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "TMPDIR": str(self.temporary),
            _MARK: str(os.getpid()),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description="see the docstring")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    # After `nohup` a hangup would end nothing.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    chance = random.Random(arguments.seed)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    place = _set_up(folder)
    begun, ends, gates = time.monotonic(), Counter[str](), Counter[str]()
    lengths_s = dict.fromkeys(COMMANDS, _FIRST_GUESS_S)
    while time.monotonic() - begun < arguments.seconds:
        name = chance.choice(list(COMMANDS))
        number = chance.choice(SIGNALS)
        after_s = chance.uniform(0.0, lengths_s[name] * _BEYOND_THE_END)
        ended = _run(place, COMMANDS[name], number, after_s)
        what = f"{name}: {'left alone' if ended.at is None else ended.at.name}"
        ends[what] += 1
        if ended.at is None:
            lengths_s[name] = ended.seconds
        killed_gate = name == "gate" and ended.at == signal.SIGKILL
        if killed_gate:
            gates[f"{ended.children} processes and {ended.worktrees} worktrees"] += 1
        wrong = _left_at_once(place) or (
            ((killed_gate or chance.random() < 0.25) and _left_after_the_next_start(place)) or ""
        )
        if wrong:
            moment = f"{number and number.name} after {after_s:.3f} s"
            print(f"{name}, {moment}, ended with {ended.status}: {wrong}; see {folder}", flush=True)
            return 1
        if sum(ends.values()) % _TOLD_EVERY == 0:
            print(f"{time.monotonic() - begun:.0f} s: {dict(ends)} {dict(gates)}", flush=True)
    wrong = _left_after_the_next_start(place)
    print(*(f"{count:5} {what}" for what, count in sorted(ends.items())), sep="\n")
    print(
        "killed gates had",
        *(f"{count:5} {what}" for what, count in sorted(gates.items())),
        sep="\n",
    )
    print(f"{sum(ends.values())} commands in {time.monotonic() - begun:.0f} s: {wrong or 'clean'}")
    if not wrong:
        shutil.rmtree(folder)
    return int(bool(wrong))


def _set_up(folder: Path) -> Place:
    place = Place(folder / "work", folder / "temporary")
    place.work.mkdir()
    place.temporary.mkdir()
    (place.work / "train.py").write_text(SCRIPT)
    (place.work / "gpuprof.toml").write_text(CONFIGURATION)
    trace = (
        "import torch\n"
        "with torch.profiler.profile() as profile:\n"
        "    for _ in range(200):\n"
        "        torch.randn(64, 64) @ torch.randn(64, 64)\n"
        "profile.export_chrome_trace('trace.json.gz')\n"
    )
    subprocess.run([sys.executable, "-c", trace], cwd=place.work, check=True)
    identity = ("-c", "user.name=soak", "-c", "user.email=soak@localhost")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "soak")):
        subprocess.run(["git", *words], cwd=place.work, check=True)
    return place


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    seconds: float
    # The signal that found it alive, if any, and what there was of it just then.
    at: signal.Signals | None
    children: int = 0
    worktrees: int = 0


def _run(
    place: Place, command: tuple[str, ...], number: signal.Signals | None, after_s: float
) -> Ended:
    begun, at, children, worktrees = time.monotonic(), None, 0, 0
    with subprocess.Popen(
        [sys.executable, "-m", "gpuprof", *command],
        cwd=place.work,
        env=place.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        if number is not None:
            try:
                process.wait(after_s)
            except subprocess.TimeoutExpired:
                at, children, worktrees = number, len(_living()) - 1, len(_worktrees(place))
                process.send_signal(number)
        status = process.wait()
    return Ended(status, time.monotonic() - begun, at, children, worktrees)


def _worktrees(place: Place) -> list[str]:
    """Beside that of the repository itself."""
    listed = subprocess.run(
        ["git", "worktree", "list"], cwd=place.work, capture_output=True, text=True, check=True
    )
    return listed.stdout.splitlines()[1:]


def _left_at_once(place: Place) -> str:
    """A process that stays, or a capture that cannot be read; "" where there is none."""
    deadline = time.monotonic() + _SETTLING_S
    while (living := _living()) and time.monotonic() < deadline:
        time.sleep(0.05)
    if living:
        return f"still there: {living}"
    try:
        for capture in place.work.rglob("*.gpuprof"):
            storage.load(capture)
    except CaptureError as error:
        return f"half a capture: {error}"
    return ""


def _left_after_the_next_start(place: Place) -> str:
    _run(place, COMMANDS["gate"], None, 0.0)
    _run(place, COMMANDS["run"], None, 0.0)
    folders = [path.name for path in place.temporary.glob("gpuprof-*")]
    files = [path.name for path in place.work.rglob(".gpuprof-*")]
    worktrees = _worktrees(place)
    if folders or files or worktrees:
        return f"left: {[*folders, *files, *worktrees]}"
    return ""


def _living() -> list[str]:
    """The command lines of processes that ours have started, and theirs."""
    mark = f"{_MARK}={os.getpid()}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        # Most are somebody else's, or end meanwhile.
        with suppress(OSError):
            if mark in (process / "environ").read_bytes().split(b"\0"):
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                found.append(f"{process.name} {line.decode(errors='replace')[:120]}")
    return found


if __name__ == "__main__":
    sys.exit(main())
