"""In which order two sides were measured, as far as their results tell.

Runs of base and head in turn share the machine's state. Where all of one side come first, drift of
the machine looks like a change, as it does against a stored baseline.
"""

from collections.abc import Sequence

from gpuprof.collectors.benchmark_results.run import BenchmarkRun

# Files tell times to a second.
_RESOLUTION_NS = 1_000_000_000


def in_order(runs: Sequence[BenchmarkRun]) -> tuple[BenchmarkRun, ...]:
    """`runs` by the time of their end; as they are where one does not tell it."""
    if any(run.end_ns is None for run in runs):
        return tuple(runs)
    return tuple(sorted(runs, key=lambda run: run.end_ns or 0))


def separated(base: Sequence[BenchmarkRun], head: Sequence[BenchmarkRun]) -> bool:
    """Whether all of one side are known to have ended before the other began to end."""
    ends = [[run.end_ns for run in runs if run.end_ns is not None] for runs in (base, head)]
    if len(ends[0]) < len(base) or len(ends[1]) < len(head):
        return False
    return max(ends[0]) < min(ends[1]) or max(ends[1]) < min(ends[0])


def order_warnings(base: Sequence[BenchmarkRun], head: Sequence[BenchmarkRun]) -> tuple[str, ...]:
    """What their order means for the verdicts."""
    if any(run.end_ns is None for run in (*base, *head)):
        return (
            "the files do not tell when they were made: where base and head did not run in turn, "
            "drift of the machine looks like a change",
        )
    said = []
    if separated(base, head):
        said.append(
            "one side ran before the other and not in turn, as a stored baseline: such "
            "comparisons raise false alarms in 1 suite of 20, so they are advisory unless "
            "--allow-stored"
        )
    at_once = next((pair for a in base for b in head if (pair := (a, b)) and _overlap(a, b)), None)
    if at_once is not None:
        said.append(
            f"{at_once[0].place} and {at_once[1].place} ran at the same time: they measured each "
            "other, unless each had a machine of its own"
        )
    return tuple(said)


def _overlap(one: BenchmarkRun, other: BenchmarkRun) -> bool:
    if one.start_ns is None or other.start_ns is None or one.end_ns is None or other.end_ns is None:
        return False
    shared_ns = min(one.end_ns, other.end_ns) - max(one.start_ns, other.start_ns)
    return shared_ns > _RESOLUTION_NS
