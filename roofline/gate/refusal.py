"""What cannot be judged: other machines, crashed processes, and figures that are not there.

These come before any statistics, so that a NaN, which compares false with everything, never
reaches a comparison.
"""

from gpuprof.roofline.gate.judgement import Judgement, Reason, Verdict
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import Series

_SIDES = {"A": "the base", "B": "the change"}


def refusal(series: Series, settings: RuleSettings) -> Judgement | None:
    """The verdict on a series that cannot be compared, or None where it can."""
    failed = next((run for run in series.runs if run.failure), None)
    if failed is not None:
        # First: what a process did not live to see of its environment is no difference of that.
        message = f"a process of {_SIDES[failed.side]} failed: {failed.failure}"
        return _refuse(series, "ERROR", "crashed", message)
    if series.incomparable:
        return _refuse(
            series, "INCOMPARABLE", "environment-differs", "; ".join(series.incomparable)
        )
    if not series.side("B"):
        return _refuse(series, "ERROR", "missing-metric", "missing metric: the change lacks it")
    for run in series.runs:
        if run.damage:
            message = f"{run.damage} in pair {run.pair} of {_SIDES[run.side]}"
            return _refuse(series, "ERROR", "bad-sample", message)
    for side, name in (("A", "the base"), ("B", "the change")):
        runs = series.side("A" if side == "A" else "B")
        if runs and not any(run.kept for run in runs):
            lost = any(run.samples for run in runs)
            why = "all samples were discarded" if lost else "it gave no samples"
            # What was discarded may come out better a second time.
            wanted = settings.looks[0] if lost else 0
            return _refuse(
                series, "ERROR", "no-data", f"no data of {name}: {why}", pairs_wanted=wanted
            )
    return None


def _refuse(
    series: Series, verdict: Verdict, reason: Reason, message: str, *, pairs_wanted: int = 0
) -> Judgement:
    return Judgement(
        benchmark=series.benchmark,
        metric=series.metric,
        verdict=verdict,
        reason=reason,
        message=message,
        # What gave no data must not pass, whatever its budget is worth.
        level="error" if verdict == "ERROR" else series.budget.level,
        pairs_wanted=pairs_wanted,
    )
