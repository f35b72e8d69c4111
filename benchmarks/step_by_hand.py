"""Steps and their parts worked out from a trace with Python's json and sqlite3 alone.

    python benchmarks/step_by_hand.py [--beside] TRACE...

Prints, for each Kineto trace (.json, .json.gz) or export of Nsight Systems (.sqlite, .sqlite.gz),
how long a step is and what of it is computing, exposed communication, exposed copies over a link,
and idle; all by plain loops over the events, for the first process with device work. With --beside
the same figures of `gpuprof analyze` stand next to them, and the exit code is 1 where one differs
by over 0.1 % of the step.
"""

import argparse
import gzip
import json
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

DEVICE_WORK = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
CALLS = {"cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "driver"}
MARKS = {"user_annotation", "cpu_op", "operator"}
# Device work that ends after its host's mark by more than this share of the step is behind.
BEHIND = 0.01
TOLERANCE = 0.001
# Of NVTX ranges, which mark no steps by themselves.
STEP_NAME = re.compile(r"(step|iteration|replay)\b|step ?\d", re.IGNORECASE)
Interval = tuple[int, int]


@dataclass(frozen=True)
class Work:
    """One piece of device work; times in ns."""

    start: int
    end: int
    what: str
    launched: int | None


@dataclass(frozen=True)
class Step:
    """Means over the steps that count, in ns."""

    definition: str
    steps: int
    length: float
    computing: float
    communication: float
    copies: float

    @property
    def idle(self) -> float:
        """Without device work."""
        return self.length - self.computing - self.communication - self.copies


def what_it_is(category: str, name: str) -> str:
    """computing, communication, or a copy over a link."""
    if "nccl" in name.lower() or "rccl" in name.lower():
        return "communication"
    if "memcpy" in category and "DtoD" not in name:
        return "copy"
    return "computing"


def covered(intervals: list[Interval]) -> int:
    """Nanoseconds in at least one of `intervals`."""
    total, reached = 0, -(2**63)
    for start, end in sorted(intervals):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total


def read_json(path: Path) -> tuple[list[Work], list[Interval]]:
    """The device work of the first process that has some, and the marks of its steps."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        document: Any = json.loads(file.read())
    events = document["traceEvents"] if isinstance(document, dict) else document
    complete = [event for event in events if event.get("ph") == "X" and "dur" in event]

    def times(event: Any) -> Interval:
        start = round(float(event["ts"]) * 1000)
        return start, start + round(float(event["dur"]) * 1000)

    launched: dict[int, int] = {}
    for event in complete:
        correlation = (event.get("args") or {}).get("correlation")
        if str(event.get("cat")).lower() in CALLS and correlation:
            start = times(event)[0]
            launched[correlation] = min(start, launched.get(correlation, start))
    work = []
    for event in complete:
        category, name = str(event.get("cat")).lower(), str(event.get("name"))
        if category in DEVICE_WORK:
            correlation = (event.get("args") or {}).get("correlation")
            start, end = times(event)
            work.append(Work(start, end, what_it_is(category, name), launched.get(correlation)))
    marks = {
        times(event)
        for event in complete
        if str(event.get("name")).startswith("ProfilerStep#")
        and str(event.get("cat")).lower() in MARKS
    }
    return work, sorted(marks)


def read_sqlite(path: Path) -> tuple[list[Work], list[Interval]]:
    """The device work of an export, and the NVTX ranges in it that are called after steps."""
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as plain:
        content = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
        plain.write(content)
        plain.flush()
        database = sqlite3.connect(plain.name)
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
        launched: dict[tuple[int, int], int] = {}
        if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
            for start, thread, correlation in database.execute(
                "SELECT start, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
            ):
                key = thread >> 24, correlation
                launched[key] = min(start, launched.get(key, start))
        work = []
        queries = {
            "CUPTI_ACTIVITY_KIND_KERNEL": "SELECT k.start, k.end, s.value, 0, k.globalPid, "
            "k.correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s "
            "ON s.id = k.shortName",
            "CUPTI_ACTIVITY_KIND_MEMCPY": "SELECT start, end, 'memcpy', copyKind, globalPid, "
            "correlationId FROM CUPTI_ACTIVITY_KIND_MEMCPY",
            "CUPTI_ACTIVITY_KIND_MEMSET": "SELECT start, end, 'memset', 0, globalPid, "
            "correlationId FROM CUPTI_ACTIVITY_KIND_MEMSET",
        }
        for table, query in queries.items():
            rows = database.execute(query) if table in tables else ()
            for start, end, name, kind, owner, correlation in rows:
                # CUpti_ActivityMemcpyKind: 8 stays within a device.
                within = " DtoD" if kind == 8 else ""
                category = name if name == "memcpy" else ""
                what = what_it_is(category, name + within)
                begun = launched.get((owner >> 24, correlation))
                work.append((owner, Work(start, end, what, begun)))
        marks = nvtx_steps(database) if "NVTX_EVENTS" in tables else []
    first = min((owner for owner, _ in work), default=None)
    return [piece for owner, piece in work if owner == first], marks


def nvtx_steps(database: sqlite3.Connection) -> list[Interval]:
    """From each range that is called after a step to the next; without a slow first one."""
    rows = database.execute(
        "SELECT n.start, n.end, coalesce(n.text, s.value) FROM NVTX_EVENTS n "
        "LEFT JOIN StringIds s ON s.id = n.textId WHERE n.end IS NOT NULL ORDER BY n.start"
    )
    ranges = [(start, end) for start, end, name in rows if name and STEP_NAME.match(name)]
    nexts = [start for start, _ in ranges[1:]] + [end for _, end in ranges[-1:]]
    steps = [(start, after) for (start, _), after in zip(ranges, nexts, strict=True)]
    lengths = sorted(end - start for start, end in steps)
    while steps and steps[0][1] - steps[0][0] > 1.5 * statistics.median(lengths):
        steps.pop(0)
    return steps


def step_of(work: list[Work], marks: list[Interval]) -> Step | None:
    """One step, by the definitions of docs/numbers.md."""
    if not work:
        return None
    by_step: dict[int, list[Work]] = defaultdict(list)
    for piece in work:
        # What has no launch in a trace that has launches was queued before it began.
        for number, (start, end) in enumerate(marks):
            if piece.launched is not None and start <= piece.launched < end:
                by_step[number].append(piece)
    numbers = list(range(len(marks)))
    if len(numbers) > 1:
        *earlier, last = (len(by_step[number]) for number in numbers)
        alike = len(earlier) > 1 and min(earlier) == max(earlier)
        if last < (0.98 if alike else 0.5) * min(earlier):
            numbers.pop()
    if not numbers:
        begun, done = min(piece.start for piece in work), max(piece.end for piece in work)
        return parts("whole trace", work, [done - begun], (begun, done))
    with_work = [number for number in numbers if by_step[number]]
    ends = [max(piece.end for piece in by_step[number]) for number in with_work]
    hosts = [marks[number][1] - marks[number][0] for number in numbers]
    lags = sorted(end - marks[number][1] for number, end in zip(with_work, ends, strict=True))
    behind = lags and lags[len(lags) // 2] > BEHIND * sorted(hosts)[len(hosts) // 2]
    if behind and len(ends) > 1:
        lengths = [after - before for before, after in pairwise(ends)]
        return parts("device period", work, lengths, (ends[0], ends[-1]))
    chosen = [piece for number in numbers for piece in by_step[number]]
    if behind and len(ends) == 1:
        first = min(piece.start for piece in chosen)
        before = [p.end for p in work if p.start < first and p.end > marks[with_work[0]][0]]
        begun = min(first, max(before, default=first))
        if before or ends[0] - begun > hosts[0]:
            return parts("device period", chosen, [ends[0] - begun], (-(2**62), 2**62))
    return parts("host range", chosen, hosts, (-(2**62), 2**62))


def parts(definition: str, work: list[Work], lengths: list[int], window: Interval) -> Step:
    """What of the steps in `window` is computing, and what of the rest is copies and more."""
    first, last = window
    inside = [
        (max(piece.start, first), min(piece.end, last), piece.what)
        for piece in work
        if piece.end > first and piece.start < last
    ]
    order = ("computing", "copy", "communication")
    reached = [
        covered([(start, end) for start, end, what in inside if what in order[: hiding + 1]])
        for hiding in range(len(order))
    ]
    number = len(lengths)
    return Step(
        definition,
        number,
        sum(lengths) / number,
        reached[0] / number,
        (reached[2] - reached[1]) / number,
        (reached[1] - reached[0]) / number,
    )


def by_gpuprof(path: Path) -> Step | None:
    """The same figures from `gpuprof analyze`."""
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder) / "capture.gpuprof"
        command = [sys.executable, "-m", "gpuprof", "analyze", str(path), "-o", str(capture)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        analysis: Any = json.loads((capture / "analysis.json").read_text())
    split, exposed, steps = analysis["split"], analysis["exposed"], analysis["steps"]
    if split is None or exposed is None:
        return None
    return Step(
        split["basis"],
        len(steps["samples_ns"]),
        split["step_ns"],
        exposed["computing_ns"],
        exposed["communication_ns"],
        exposed["copies_ns"],
    )


def row(name: str, step: Step | None) -> str:
    """One line of the table, in ms."""
    if step is None:
        return f"| {name} | no device work | | | | | |"
    figures = (step.length, step.computing, step.communication, step.copies, step.idle)
    shown = " | ".join(f"{figure / 1e6:.4g}" for figure in figures)
    return f"| {name} | {step.definition}, {step.steps} | {shown} |"


def agree(one: Step, other: Step | None) -> bool:
    """Whether all figures are alike within the tolerance."""
    if other is None:
        return False
    pairs = (
        (one.length, other.length),
        (one.computing, other.computing),
        (one.communication, other.communication),
        (one.copies, other.copies),
    )
    allowed = TOLERANCE * one.length
    return one.definition == other.definition and all(abs(a - b) <= allowed for a, b in pairs)


def main() -> int:
    """Print the table; 1 where gpuprof says something else."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--beside", action="store_true", help="gpuprof's figures, and compare")
    options = parser.parse_args()
    print("| trace | step, number | ms | computing | communication | copies | idle |")
    print("|---|---|---|---|---|---|---|")
    differing = 0
    for path in options.traces:
        read = read_sqlite if ".sqlite" in path.suffixes else read_json
        hand = step_of(*read(path))
        print(row(path.name.split(".json")[0], hand))
        if options.beside and hand is not None:
            ours = by_gpuprof(path)
            same = agree(hand, ours)
            differing += not same
            print(row("gpuprof" if same else "gpuprof DIFFERS", ours))
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
