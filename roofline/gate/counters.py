"""The exact lane: counts that do not vary from process to process, compared without statistics.

Kernel launches, kernel names, synchronisations, copied bytes, graph breaks, peak allocated bytes:
where the processes of each side agree among themselves, any difference between the sides is real.
Where they do not, the counter says nothing exact and is demoted: a number can be judged as a timed
series instead, a set of names cannot.
"""

from collections.abc import Sequence

import msgspec

from gpuprof.roofline.gate.budget import BudgetLevel
from gpuprof.roofline.gate.judgement import Judgement, Reason, Verdict
from gpuprof.roofline.gate.series import Better, Metric, ProcessRun, Series, Side


class CounterBudget(msgspec.Struct, frozen=True, kw_only=True):
    """By how much a counter may be worse. Without one a change is said and fails nothing."""

    # Relative to the base, as a fraction; 0 allows no worsening, None is the gate's own fail_above.
    regress: float | None = 0.0
    # Whatever the base has, in the counter's unit.
    maximum: float | None = None
    minimum: float | None = None
    level: BudgetLevel = "warn"


class Counter(msgspec.Struct, frozen=True, kw_only=True):
    """One number of one benchmark, one value a process; both sides measured alike."""

    benchmark: str
    # "launches", "synchronisations", "copied bytes", "graph breaks", "peak memory", ...
    name: str
    unit: str = ""
    better: Better = "lower"
    # Whole numbers, or such numbers over the steps in which they were counted.
    base: tuple[float, ...]
    head: tuple[float, ...]
    budget: CounterBudget = CounterBudget()

    @property
    def agrees(self) -> bool:
        """Whether all processes of each side have one value. False for a single process."""
        return _agree(self.base) and _agree(self.head)


class NameSet(msgspec.Struct, frozen=True, kw_only=True):
    """Names that one benchmark used, with their counts: one mapping a process."""

    benchmark: str
    # "kernels"
    name: str
    base: tuple[dict[str, int], ...]
    head: tuple[dict[str, int], ...]
    # How many new names are allowed; None says them and fails nothing.
    maximum_new: int | None = None
    level: BudgetLevel = "error"


def judge_counter(counter: Counter, fail_above: float) -> Judgement:
    """The verdict on an exact counter; `fail_above` is what the gate allows without a budget.

    PASS where equal or within its budget; INCONCLUSIVE with reason "counter-varies" where the
    processes of a side disagree: then judge `as_series(counter)` instead.
    """
    metric = Metric(name=counter.name, unit=counter.unit, better=counter.better)
    if not counter.base or not counter.head:
        return _missing(counter.benchmark, metric, counter.budget.level, counter.base, counter.head)
    base, head = _mean(counter.base), _mean(counter.head)

    def say(verdict: Verdict, reason: Reason, message: str) -> Judgement:
        return Judgement(
            benchmark=counter.benchmark,
            metric=metric,
            verdict=verdict,
            reason=reason,
            message=message,
            level=counter.budget.level,
            pairs=min(len(counter.base), len(counter.head)),
            base=base,
            head=head,
            change=head / base - 1 if base else None,
        )

    if not counter.agrees:
        sides = f"{_spread(counter.base)} before, {_spread(counter.head)} after"
        return say("INCONCLUSIVE", "counter-varies", f"varies between processes: {sides}")
    before, after = counter.base[0], counter.head[0]
    most, least = counter.budget.maximum, counter.budget.minimum
    if most is not None and after > most:
        limit = f"{_text(after)} is over its maximum of {_text(most)}"
        return say("REGRESSED", "over-maximum", limit)
    if least is not None and after < least:
        limit = f"{_text(after)} is under its minimum of {_text(least)}"
        return say("REGRESSED", "under-minimum", limit)
    if before == after:
        return say("PASS", "no-change", f"{_text(after)} as before")
    change = f"{_text(before)} -> {_text(after)}"
    worse = (after - before) if counter.better == "lower" else (before - after)
    if worse < 0:
        return say("IMPROVED", "counter-better", change)
    if counter.budget == CounterBudget():
        # Nobody asked for it, so it fails nothing.
        return say("REGRESSED", "counter-worse", change)
    regress = counter.budget.regress
    allowed = fail_above if regress is None else regress
    limit = f"{'limit' if regress is None else 'budget'} of {allowed:.1%}"
    # No count is worse by a fraction of nothing: from 0 any worsening is over the budget.
    if worse <= allowed * abs(before):
        return say("PASS", "below-budget", f"{change}, within its {limit}")
    return say("REGRESSED", "counter-worse", f"{change}, over its {limit}")


def judge_names(names: NameSet) -> Judgement:
    """The verdict on a set of names, such as the kernels that ran.

    CHANGED-KERNEL where they differ and no budget forbids it, or where the processes of one side
    differ among themselves.
    """
    metric = Metric(name=names.name, unit="")
    if not names.base or not names.head:
        return _missing(names.benchmark, metric, names.level, names.base, names.head)

    def say(verdict: Verdict, reason: Reason, message: str) -> Judgement:
        return Judgement(
            benchmark=names.benchmark,
            metric=metric,
            verdict=verdict,
            reason=reason,
            message=message,
            level=names.level,
            pairs=min(len(names.base), len(names.head)),
            base=float(len(names.base[0])),
            head=float(len(names.head[0])),
        )

    if any(one != names.base[0] for one in names.base[1:]) or any(
        one != names.head[0] for one in names.head[1:]
    ):
        return say("CHANGED-KERNEL", "kernels-vary", "processes of the same code ran other ones")
    before, after = names.base[0], names.head[0]
    if before == after:
        return say("PASS", "no-change", f"the same {len(after)}")
    new, gone = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    recounted = sum(before[name] != after[name] for name in before.keys() & after.keys())
    message = f"{len(new)} new, {len(gone)} gone, {recounted} with another count"
    if names.maximum_new is not None and len(new) > names.maximum_new:
        allowed = f"{message}: at most {names.maximum_new} new ones are allowed"
        return say("REGRESSED", "counter-worse", allowed)
    return say("CHANGED-KERNEL", "kernels-differ", message)


def as_series(counter: Counter) -> Series | None:
    """A demoted counter for the timed lane: one sample a process, paired in order.

    None where a value is 0, of which no ratio can be taken: it stays inconclusive.
    """
    if 0 in counter.base or 0 in counter.head:
        return None
    return Series(
        benchmark=counter.benchmark,
        metric=Metric(name=counter.name, unit=counter.unit, better=counter.better),
        runs=(*_runs("A", counter.base), *_runs("B", counter.head)),
    )


def _runs(side: Side, values: Sequence[float]) -> tuple[ProcessRun, ...]:
    return tuple(
        ProcessRun(side=side, pair=pair, samples=(float(value),))
        for pair, value in enumerate(values)
    )


def _missing(
    benchmark: str,
    metric: Metric,
    level: BudgetLevel,
    base: Sequence[object],
    head: Sequence[object],
) -> Judgement:
    if head:
        verdict: Verdict = "PASS"
        reason: Reason = "new"
        message = "new, not gated: the base does not have it"
    else:
        verdict, reason = "ERROR", "missing-metric"
        message = "missing metric: the change lacks it" if base else "no data of either side"
        level = "error"
    return Judgement(
        benchmark=benchmark,
        metric=metric,
        verdict=verdict,
        reason=reason,
        message=message,
        level=level,
    )


def _agree(values: Sequence[float]) -> bool:
    return len(values) > 1 and len(set(values)) == 1


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _spread(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return _text(low) if low == high else f"{_text(low)} to {_text(high)}"


def _text(value: float) -> str:
    # All digits of a whole number, such as bytes; a few of what steps share.
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
