"""The gate for the marked tests of one pytest session."""

import tempfile
from pathlib import Path

import pytest

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.gate.engine import Plan, run_gate
from gpuprof.profiler.gate.programs import Preparation
from gpuprof.profiler.gate.rules import budget_row
from gpuprof.profiler.gate.settings import BudgetSettings, GateSettings, Limits
from gpuprof.profiler.gate.targets import Target
from gpuprof.profiler.pytest_plugin import TARGET, Steps, budgets
from gpuprof.roofline.gate.result import GateResult
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.suite import Rules


def gate_tests(config: pytest.Config, items: list[pytest.Item]) -> GateResult:
    """Measure `items` in pairs of processes of the commit given and of the working tree.

    Raises `pytest.UsageError` where there is no such commit or a budget is none.
    """
    steps = Steps.parse(config.getoption("--gpuprof-steps"))
    target = Target(
        name=TARGET,
        pytest=tuple(item.nodeid for item in items),
        warmup=steps.warmup,
        timed=steps.timed,
        profiled=steps.profiled,
    )
    preparation = Preparation(config.rootpath, GateSettings())
    try:
        rows = tuple(
            budget_row(BudgetSettings(match=name, time=Limits(regress=budget)), "@pytest.mark")
            for name, budget in budgets(items).items()
        )
        reference = config.getoption("--gpuprof-gate")
        with (
            tempfile.TemporaryDirectory(prefix="gpuprof-gate-") as output,
            preparation.base(reference, (target,)) as base,
        ):
            return run_gate(
                Plan(
                    base=base,
                    head=preparation.head((target,)),
                    rules=Rules(RuleSettings(), budgets=rows),
                    output=Path(output),
                )
            )
    except CommandError as error:
        raise pytest.UsageError(str(error)) from error
