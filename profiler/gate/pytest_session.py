"""The gate for the marked tests of one pytest session."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpuprof.collectors.errors import GpuprofError, describe
from gpuprof.collectors.files.temporary import keep, new_temporary_folder
from gpuprof.profiler.configuration.file import (
    CONFIGURATION_FILE,
    Configuration,
    find_configuration,
    read_configuration,
)
from gpuprof.profiler.configuration.gate_settings import BudgetSettings, Limits
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate.engine import GatePlan, run_gate
from gpuprof.profiler.gate.marked_tests import TARGET, Steps, budgets
from gpuprof.profiler.gate.programs import Preparation
from gpuprof.profiler.gate.rules import budget_row, suite_rules, time_span_s
from gpuprof.roofline.gate.result import GateResult


def gate_tests(config: pytest.Config, items: list[pytest.Item]) -> GateResult:
    """Measure `items` in pairs of processes of the commit given and of the working tree.

    gpuprof.toml says how; a test's own budget wins over those there. Raises `pytest.UsageError`
    where there is no such commit, a budget or time is none or a disk is full, and ends the session
    where a signal ended the gate.
    """
    steps = Steps.parse(config.getoption("--gpuprof-steps"))
    target = Target(
        name=TARGET,
        pytest=tuple(item.nodeid for item in items),
        warmup=steps.warmup,
        timed=steps.timed,
        profiled=steps.profiled,
    )
    limit = config.getoption("--gpuprof-time-limit")
    try:
        limit_s = None if limit is None else time_span_s(limit, "--gpuprof-time-limit")
        file = find_configuration(config.rootpath)
        configuration = Configuration() if file is None else read_configuration(file)
        preparation = Preparation(config.rootpath, configuration.gate)
        rules = suite_rules(configuration, CONFIGURATION_FILE if file is None else str(file))
        rows = tuple(
            budget_row(BudgetSettings(match=name, time=Limits(regress=budget)), "@pytest.mark")
            for name, budget in budgets(items).items()
        )
        reference = config.getoption("--gpuprof-gate")
        with (
            _logs_of_failures() as logs,
            preparation.base(reference, (target,)) as base,
        ):
            result = run_gate(
                GatePlan(
                    base=base,
                    head=preparation.head((target,)),
                    rules=replace(rules, budgets=(*rules.budgets, *rows)),
                    output=logs.folder,
                    time_limit_s=limit_s,
                )
            )
            logs.wanted = any(process.failure for process in result.processes)
            return result
    except (GpuprofError, OSError) as error:
        raise pytest.UsageError(describe(error)) from error
    except SystemExit as ended:
        # By a signal. What pytest does not know the reason of is an error of its own to it.
        status = _status(ended)
        name = signal.Signals(status - 128).name
        pytest.exit(f"the gate was ended by {name}", returncode=status)


def _status(ended: SystemExit) -> int:
    return ended.code if isinstance(ended.code, int) else 1


@dataclass
class _Logs:
    """The temporary folder of a gate; it stays where it is wanted."""

    folder: Path
    wanted: bool = False


@contextmanager
def _logs_of_failures() -> Iterator[_Logs]:
    """A folder that goes at the end, unless a message names a log in it."""
    logs = _Logs(new_temporary_folder("gate"))
    try:
        yield logs
    finally:
        if logs.wanted:
            keep(logs.folder)
        else:
            shutil.rmtree(logs.folder, ignore_errors=True)
