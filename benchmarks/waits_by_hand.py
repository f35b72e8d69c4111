"""Why the device waits, worked out from a Kineto trace with Python's json and plain loops alone.

    python benchmarks/waits_by_hand.py [--beside] TRACE...

Prints the time without device work of one step, and what of it the host spends in its data loader,
in calls of the driver's allocator, waiting for the device in a call, and in all else, beside what
was queued and had not begun (docs/numbers.md, "Why the device waits"). With --beside the same
figures of gpuprof stand next to them, and the exit code is 1 where one differs by over 0.5 % of the
time without device work. Traces whose device runs behind their marks are left out: their steps are
those of benchmarks/step_by_hand.py.
"""

import argparse
import gzip
import json
import re
import statistics
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from step_by_hand import CALLS, DEVICE_WORK, MARKS, read_json, step_of

LOADER = re.compile(r"^enumerate\(Data(Loader|Pipe)\)#")
ALLOCATOR = re.compile(r"^(cuda|hip)(Malloc|Free|Host(Alloc|Malloc|Free))")
WAITING = re.compile(r"(Stream|Device|Event)Synchronize")
TOLERANCE = 0.005
GROUPS = ("data loader", "allocator", "waiting in a call", "queued", "all else")


@dataclass
class Events:
    """What counts of a trace; times in ns."""

    # Start and end of each piece of device work, and of the call that launched it.
    work: list[tuple[int, int, tuple[int, int, int] | None]] = field(default_factory=list)
    # Start, end, thread and name of what a thread is in.
    host: list[tuple[int, int, int, str]] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)


def read(path: Path) -> Events:
    """The events of the one process of `path`."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        document: Any = json.loads(file.read())
    found, calls, work = Events(), {}, []
    for event in document["traceEvents"] if isinstance(document, dict) else document:
        if event.get("ph") != "X" or "dur" not in event:
            continue
        start = round(float(event["ts"]) * 1000)
        end = start + round(float(event["dur"]) * 1000)
        category, name = str(event.get("cat")).lower(), str(event.get("name"))
        correlation = (event.get("args") or {}).get("correlation")
        if category in DEVICE_WORK:
            work.append((start, end, correlation))
        elif name.startswith("ProfilerStep#") and category in MARKS:
            found.steps.append((start, end))
        elif category in CALLS or LOADER.match(name):
            found.host.append((start, end, event["tid"], name))
            if category in CALLS and correlation:
                calls[correlation] = min(
                    calls.get(correlation, (start, end, event["tid"])),
                    (
                        start,
                        end,
                        event["tid"],
                    ),
                )
    known = [(start, end, calls.get(number)) for start, end, number in work]
    # What has no launch was queued before the recording and is of no step.
    found.work = sorted(piece for piece in known if piece[2] or not found.steps)
    found.host.sort()
    return found


def gaps(events: Events) -> list[tuple[int, int, int, int, int]]:
    """Start, end, when the work at the end was queued, the host's lead, and its thread."""
    found, reached = [], min(events.steps)[0] if events.steps else events.work[0][0]
    reached = min(reached, events.work[0][0])
    for start, end, launch in events.work:
        if start > reached:
            # Without a launch nothing is known but that it began then, on some thread.
            found.append((reached, start, launch or (start, start, events.host[0][2])))
        reached = max(reached, end)
    latencies = [end - min(call[1], end) for start, end, call in found if start < call[0] < end]
    allowed = 2 * statistics.median(latencies) if len(latencies) >= 5 else 5000
    result = []
    for start, end, (_, returned, thread) in found:
        latency = end - min(returned, end)
        queued = end - min(max(latency - int(allowed), 0), end - start)
        result.append((start, end, queued, queued - min(returned, end), thread))
    if events.steps and max(events.steps)[1] > reached:
        last = max(events.steps)[1]
        result.append((reached, last, last, 0, events.host[-1][2]))
    return result


def by_hand(path: Path) -> dict[str, float] | None:
    """The groups of one step, in ns."""
    step = step_of(*read_json(path))
    if step is None or step.definition == "device period":
        return None
    events = read(path)
    # A last step that was cut off does not count.
    events.steps = sorted(set(events.steps))[: step.steps]
    steps = events.steps or [(events.work[0][0], max(end for _, end, _ in events.work))]
    sums = dict.fromkeys(GROUPS, 0)
    longest = max((end - start for start, end, _, _ in events.host), default=0)
    low = 0
    for start, end, queued, shift, thread in gaps(events):
        sums["queued"] += sum(max(0, min(end, b) - max(queued, a)) for a, b in steps)
        if queued <= start:
            continue
        first, last = start - shift, queued - shift
        while low < len(events.host) and events.host[low][0] < first - longest:
            low += 1
        edges, inside = {first, last}, []
        for event in events.host[low:]:
            if event[0] >= last:
                break
            if event[1] > first and event[2] == thread:
                inside.append(event)
                edges.update(time for time in event[:2] if first < time < last)
        ordered = sorted(edges)
        for a, b in pairwise(ordered):
            names = [name for begun, done, _, name in inside if begun <= a < done]
            length = sum(max(0, min(b + shift, y) - max(a + shift, x)) for x, y in steps)
            sums[group(names)] += length
    return {name: total / len(steps) for name, total in sums.items()}


def group(names: list[str]) -> str:
    """What a thread does that is in all of `names`, the outermost first."""
    if any(LOADER.match(name) for name in names):
        return "data loader"
    if names and ALLOCATOR.match(names[-1]):
        return "allocator"
    return "waiting in a call" if names and WAITING.search(names[-1]) else "all else"


def by_gpuprof(path: Path) -> dict[str, float]:
    """The same groups from gpuprof's pieces of idle time."""
    import polars as pl

    from gpuprof.collectors.opening import open_traces
    from gpuprof.roofline.idle.pieces import idle_pieces
    from gpuprof.roofline.steps.stretch import device_runs_behind, profiled_stretch, step_ends
    from gpuprof.roofline.work.attribution import attribute
    from gpuprof.roofline.work.math_mode import math_mode
    from gpuprof.roofline.work.work import find_work

    whole = open_traces([path])
    capture = attribute(whole.rank(whole.manifest.ranks[0]))
    work = find_work(capture, math_mode(None, capture.processes[0]))
    stretch = profiled_stretch(capture, work, behind=device_runs_behind(step_ends(whole)))
    if stretch is None:
        raise SystemExit(f"{path}: no steps")
    idle = idle_pieces(capture, work, stretch, on_cpu=False)
    names = pl.Series([*capture.launches["name"], ""])
    called = names.gather(idle.pieces["call_row"].fill_null(capture.launches.height))
    waiting = (
        (pl.col("kind") == "synchronisation")
        & ~pl.col("drained")
        & pl.Series(called.str.contains(WAITING.pattern))
    )
    found = idle.pieces.with_columns(
        group=pl.when(pl.col("kind").is_in(GROUPS))
        .then("kind")
        .when(waiting)
        .then(pl.lit("waiting in a call"))
        .otherwise(pl.lit("all else"))
    )
    sums = dict(found.group_by("group").agg(pl.col("nanoseconds").sum()).iter_rows())
    return {name: sums.get(name, 0) / stretch.steps for name in GROUPS}


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("--beside", action="store_true", help="compare with gpuprof")
    options = parser.parse_args()
    print("| trace | waits | " + " | ".join(GROUPS) + " |")
    differing = 0
    for path in options.traces:
        found = by_hand(path)
        if found is None:
            print(f"| {path.name} | the device runs behind | | | | | |")
            continue
        rows = [(path.name, found)]
        if options.beside:
            rows.append(("gpuprof", by_gpuprof(path)))
            whole = sum(found.values())
            apart = [abs(found[name] - rows[1][1][name]) for name in GROUPS]
            differing += max(apart) > TOLERANCE * whole
        for name, sums in rows:
            figures = (sum(sums.values()), *(sums[group] for group in GROUPS))
            print(f"| {name} | " + " | ".join(f"{value / 1e6:.5g}" for value in figures) + " |")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
