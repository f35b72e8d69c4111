"""What has added up since a pinned baseline: many changes that each stay below their budget."""

from collections.abc import Sequence
from datetime import date

import msgspec

from gpuprof.roofline.gate.budget import Budget
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.result import GateResult, SideInfo
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import TIME, Metric
from gpuprof.roofline.gate.suite import BudgetRow, MeasuredProcess, Rules, judge_suite
from gpuprof.roofline.machine.environment import differences


def changes_since(
    name: str,
    pinned: SideInfo,
    processes: Sequence[MeasuredProcess],
    result: GateResult,
    settings: RuleSettings,
    limit: float,
    *,
    trusted: bool,
) -> tuple[Judgement, ...]:
    """How the times of the head of `result` stand against `processes`, with `limit` allowed.

    Those are side A and were measured once as the baseline `name`. The judgements fail nothing
    unless the baseline is `trusted`, being of another session.
    """
    head = [process for process in result.processes if process.side == "B"]
    targets = {process.target for process in head}
    budget = Budget(regress=limit, level="error" if trusted else "warn")
    rules = Rules(settings, budgets=(BudgetRow(match="*", metrics={TIME.name: budget}),))
    differs = differences(pinned.fingerprint, result.head.fingerprint).strict
    judgements = judge_suite(
        [*(process for process in processes if process.target in targets), *head],
        rules,
        today=date.today(),
        incomparable=dict.fromkeys(targets, differs),
        give_up=True,
    )
    metric = Metric(name=f"{TIME.name} since {name}", unit=TIME.unit)
    return tuple(
        msgspec.structs.replace(judgement, metric=metric, level=budget.level)
        for judgement in judgements
        if judgement.metric == TIME and judgement.reason != "new"
    )
