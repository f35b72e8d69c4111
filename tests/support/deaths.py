"""The table of deaths: each phase of a run, times each way in which a program can die in it.

Tests take a few of its rows, `scripts/try_deaths.py` takes all.
"""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from training_script import TRAINING

from gpuprof.collectors import storage
from gpuprof.collectors.errors import CaptureError

SCHEDULE: Final = ("--warmup", "3", "--timed", "3", "--profiled", "2")
STEPS: Final = (3, 3, 2)


@dataclass(frozen=True)
class Phase:
    """Where a program dies."""

    name: str
    # Whole steps before that, of `SCHEDULE`; it dies within the next one.
    steps: int
    # While gpuprof stores what is over: nothing of the program can raise any more.
    storing: bool = False
    # Of ours "module.name", whose next call it dies in, by a signal from outside.
    within: str = ""
    options: tuple[str, ...] = ()
    capture: str = "out.gpuprof"
    # Whether there is a profile, where there is a capture.
    profiled: bool = False


@dataclass(frozen=True)
class Way:
    """How a program dies."""

    name: str
    source: str
    # None of the program's Python runs afterwards, nor ours, so that only what was stored is there.
    at_once: bool = False
    # Only where the program itself runs.
    of_the_program: bool = True


PHASES: Final = (
    Phase("looking", 0),
    Phase("warm-up", 2),
    Phase("timed", 4),
    Phase("profiled", 7),
    Phase("after", 30, profiled=True),
    Phase("storing", 30, storing=True, profiled=True),
    Phase(
        "the end of the profile",
        30,
        within="gpuprof.collectors.live.torch_trace.write_tensor_lists",
        profiled=True,
    ),
    Phase(
        "the end of a capture on demand",
        30,
        within="gpuprof.profiler.run.recording.Recording.finish",
        options=("--wait", "--at-step", "3"),
        capture="out.1.gpuprof",
        profiled=True,
    ),
)
# Calls `dies` in the next call of a function of ours, and then the function.
_WITHIN: Final = """
import importlib
*path, name = "{within}".split(".")
owner = None
for count in range(len(path), 0, -1):
    try:
        owner = importlib.import_module(".".join(path[:count]))
        break
    except ModuleNotFoundError:
        pass
for inner in path[count:]:
    owner = getattr(owner, inner)
original = getattr(owner, name)
def interrupted(*given, **named):
    setattr(owner, name, original)
    dies()
    return original(*given, **named)
setattr(owner, name, interrupted)
"""
# In the path of each module of ours.
_OURS: Final = "/gpuprof/"
_BY_A_SIGNAL: Final = "os.kill(os.getpid(), signal.{name})\ntime.sleep(600)"
WAYS: Final = (
    *(
        Way(name, _BY_A_SIGNAL.format(name=name), at_once=True, of_the_program=False)
        for name in ("SIGKILL", "SIGSEGV", "SIGABRT")
    ),
    *(
        Way(name, _BY_A_SIGNAL.format(name=name), of_the_program=False)
        for name in ("SIGTERM", "SIGHUP", "SIGINT")
    ),
    Way("crash in C", "import ctypes\nctypes.string_at(0)", at_once=True),
    Way("abort in C", "import ctypes\nctypes.CDLL(None).abort()", at_once=True),
    Way("os._exit", "os._exit(7)"),
    Way("sys.exit", "sys.exit(7)"),
    Way("sys.exit with a sentence", "sys.exit('why')"),
    Way("exception", "raise ValueError('why')"),
    Way("MemoryError", "bytes(1 << 62)"),
    Way("recursion", "def again(): again()\nagain()"),
    Way("exception of a thread", "threading.Thread(target=lambda: 1 / 0).start()\nsys.exit(3)"),
)


@dataclass(frozen=True)
class Death:
    """One row of the table."""

    phase: Phase
    way: Way

    @property
    def name(self) -> str:
        """For people, and for the names of tests."""
        return f"{self.phase.name}: {self.way.name}"

    def script(self, *, under_gpuprof: bool) -> str:
        """The program that dies so.

        In the place of what happens while gpuprof stores python alone has it at the end.
        """
        source = self.way.source.splitlines()
        if self.phase.within and under_gpuprof:
            # Whoever sends a signal from outside does not keep the program from going on.
            source = source[:1]
        dies = "\n".join(f"    {line}" for line in source)
        lines = [TRAINING, f"def dies(*_):\n{dies}"]
        if self.phase.within and under_gpuprof:
            return "\n".join((*lines, _WITHIN.format(within=self.phase.within), "train(30)\n"))
        if self.phase.storing and under_gpuprof:
            lines += [
                "from gpuprof.profiler.run.watch import Watch",
                "Watch.finish = dies",
            ]
        lines.append(f"train({self.phase.steps})")
        if not self.phase.within:
            lines.append("print('trained', flush=True)")
        if not self.phase.storing:
            # Within a step: its forward call is the sign of one.
            lines += ["model(torch.randn(2, 8))", "dies()", "train(30)"]
        elif not under_gpuprof:
            lines.append("dies()")
        return "\n".join(lines) + "\n"


def deaths() -> Iterator[Death]:
    """The whole table."""
    for phase in PHASES:
        for way in WAYS:
            if not ((phase.storing or phase.within) and way.of_the_program):
                yield Death(phase, way)


Run = Callable[[Path, tuple[str, ...]], "subprocess.CompletedProcess[str]"]


def problems(death: Death, folder: Path, run: Run) -> list[str]:
    """What is wrong with how `death` goes under gpuprof. `run` runs `python ARGUMENTS` in a folder.

    Right are the exit code and stdout of python alone, its stderr apart from our own lines, and a
    capture that can be read or one line that says why there is none.
    """
    plain, ours = folder / "plain", folder / "ours"
    for place, under_gpuprof in ((plain, False), (ours, True)):
        place.mkdir()
        (place / "script.py").write_text(death.script(under_gpuprof=under_gpuprof))
    expected = run(plain, ("script.py",))
    options = ("-q", "--no-ceilings", *SCHEDULE, *death.phase.options, "-o", "out.gpuprof")
    done = run(ours, ("-m", "gpuprof", "run", *options, "script.py"))
    found = []
    if (done.returncode, done.stdout) != (expected.returncode, expected.stdout):
        found.append(f"{done.returncode} {done.stdout!r} is not {expected.returncode}")
    lines = done.stderr.splitlines()
    said = [line for line in lines if line.startswith("gpuprof: ")]
    theirs = [line for line in lines if line not in said]
    # Of a traceback its last line, and no frame of ours before that.
    same = _last(theirs) == _last(expected.stderr.splitlines())
    if not death.phase.storing and not (same and not any(_OURS in line for line in theirs)):
        found.append(f"stderr is {done.stderr!r} and not {expected.stderr!r}")
    try:
        capture = storage.load(ours / death.phase.capture)
    except CaptureError as error:
        if len(said) != 1:
            found.append(f"no capture ({error}) and said {said}")
    else:
        # Not the whole run is there, which is said.
        if said and not (death.phase.storing and len(said) == 1 and "has its profiled" in said[0]):
            found.append(f"there is a capture, and said {said}")
        steps = capture.steps["phase"].to_list().count("profiled")
        if death.phase.profiled and (steps != STEPS[2] or capture.ops.is_empty()):
            found.append(f"the capture has {steps} profiled steps")
    expected_names = ("script.py", death.phase.capture)
    left = [path.name for path in ours.iterdir() if path.name not in expected_names]
    return found + [f"left {name}" for name in left if not death.way.at_once]


def _last(lines: list[str]) -> str:
    """The last line; Python adds to that of a recursion what it was at, which may be a trace."""
    return lines[-1].partition(" while calling")[0] if lines else ""
