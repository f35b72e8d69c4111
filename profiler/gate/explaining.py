"""Why benchmarks changed: the captures of both sides compared, and the lines that launch."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate.benchmarks import benchmarks
from gpuprof.profiler.gate.process import process_folder
from gpuprof.profiler.gate.sides import SideProgram
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.comparison.result import Comparison
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.launching import recorded_places
from gpuprof.roofline.gate.result import Explanation, Place
from gpuprof.roofline.gate.series import TIME


def explain(
    head: SideProgram,
    output: Path,
    judgements: Sequence[Judgement],
    *,
    pairs: Mapping[str, Sequence[int]],
) -> tuple[Explanation, ...]:
    """Why those benchmarks changed whose verdict says that they did.

    The captures of `pairs`, by target, are below `output`. What fails the gate has the lines that
    launch.
    """
    times = {j.benchmark: j.change for j in judgements if j.metric == TIME}
    changed = dict.fromkeys(
        j.benchmark
        for j in judgements
        if j.verdict in ("REGRESSED", "IMPROVED") and j.reason != "counter-better"
    )
    failing = {j.benchmark for j in judgements if j.verdict == "REGRESSED" and j.fails}
    found: dict[str, Explanation] = {}
    for target in head.targets:
        wanted = sorted(filter(target.holds, failing))
        sources = _sources(target, output, wanted) if wanted else {}
        compared = _comparisons(target, output, changed, pairs[target.name])
        for name, comparisons in compared.items():
            found[name] = Explanation(
                benchmark=name,
                comparison=typical(comparisons, times.get(name) or 0.0),
                sources=sources,
            )
    return tuple(found[name] for name in changed if name in found)


def typical(comparisons: Sequence[Comparison], change: float) -> Comparison:
    """The one whose step changed most nearly by the fraction `change`, as all pairs did.

    A single pair may have met a busy moment.
    """
    return min(comparisons, key=lambda c: abs(_change(c) - change))


def _change(comparison: Comparison) -> float:
    step = comparison.step
    return 0.0 if step is None else step.lengths.change or 0.0


def _sources(target: Target, output: Path, wanted: Collection[str]) -> dict[str, Place]:
    """Where the head launches the operators of what is `wanted`, by its first pair."""
    first = process_folder(output, "B", target.name, 0)
    return recorded_places(b.capture for b in benchmarks(first, target) if b.name in wanted)


def _comparisons(
    target: Target, output: Path, wanted: Collection[str], pairs: Sequence[int]
) -> dict[str, tuple[Comparison, ...]]:
    """The two sides of each of `pairs` beside each other, for the benchmarks `wanted`."""
    found: dict[str, tuple[Comparison, ...]] = {}
    if not any(target.holds(name) for name in wanted):
        return found
    for pair in pairs:
        before = _analyses(process_folder(output, "A", target.name, pair), target, wanted)
        after = _analyses(process_folder(output, "B", target.name, pair), target, wanted)
        for name in before.keys() & after.keys():
            found[name] = (*found.get(name, ()), compare(before[name], after[name]))
    return found


def _analyses(folder: Path, target: Target, wanted: Collection[str]) -> dict[str, Analysis]:
    return {b.name: b.analysis for b in benchmarks(folder, target) if b.name in wanted}
