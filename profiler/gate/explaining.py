"""Why benchmarks changed: the captures of both sides compared, and the lines that launch."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate.benchmarks import benchmarks
from gpuprof.profiler.gate.process import launching_lines, process_folder
from gpuprof.profiler.gate.sides import SideProgram
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.comparison.result import Comparison
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.launching import launching_places, recorded_places
from gpuprof.roofline.gate.result import Explanation, Place


def explain(
    head: SideProgram,
    output: Path,
    judgements: Sequence[Judgement],
    *,
    kept_pairs: int,
    telling: Callable[[str], None],
) -> tuple[Explanation, ...]:
    """Why those benchmarks changed whose verdict says that they did.

    The captures of the first `kept_pairs` pairs are below `output`. For what fails the gate one
    more process finds the lines that launch.
    """
    changed = dict.fromkeys(
        j.benchmark
        for j in judgements
        if j.verdict in ("REGRESSED", "IMPROVED") and j.reason != "counter-better"
    )
    failing = {j.benchmark for j in judgements if j.verdict == "REGRESSED" and j.fails}
    found: dict[str, Explanation] = {}
    for target in head.targets:
        wanted = sorted(filter(target.holds, failing))
        if wanted:
            telling(f"{target.name}: source lines")
        sources = _sources(head, target, output, wanted)
        for name, comparisons in _comparisons(target, output, changed, kept_pairs).items():
            found[name] = Explanation(
                benchmark=name, comparison=middle(comparisons), sources=sources
            )
    return tuple(found[name] for name in changed if name in found)


def middle(comparisons: Sequence[Comparison]) -> Comparison:
    """The one whose step changed by the median: a single pair may have met a busy moment."""
    ordered = sorted(comparisons, key=lambda c: 0 if c.step is None else c.step.change_ns)
    return ordered[len(ordered) // 2]


def _sources(
    head: SideProgram, target: Target, output: Path, wanted: Collection[str]
) -> dict[str, Place]:
    """Where the head launches operators, from one process more of what is `wanted`."""
    if not wanted:
        return {}
    first = process_folder(output, "B", target.name, 0)
    lines = launching_lines(head, target, output=first.with_name("lines"), only=wanted)
    captures = (b.capture for b in benchmarks(first, target) if b.name in wanted)
    return recorded_places(captures, launching_places(lines))


def _comparisons(
    target: Target, output: Path, wanted: Collection[str], kept_pairs: int
) -> dict[str, tuple[Comparison, ...]]:
    """The two sides of each kept pair beside each other, for the benchmarks `wanted`."""
    found: dict[str, tuple[Comparison, ...]] = {}
    if not any(target.holds(name) for name in wanted):
        return found
    for pair in range(kept_pairs):
        before = _analyses(process_folder(output, "A", target.name, pair), target, wanted)
        after = _analyses(process_folder(output, "B", target.name, pair), target, wanted)
        for name in before.keys() & after.keys():
            found[name] = (*found.get(name, ()), compare(before[name], after[name]))
    return found


def _analyses(folder: Path, target: Target, wanted: Collection[str]) -> dict[str, Analysis]:
    return {b.name: b.analysis for b in benchmarks(folder, target) if b.name in wanted}
