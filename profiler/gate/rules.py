"""From gpuprof.toml's gate to the rules of a suite.

Everything is checked here, so a wrong budget is told before an hour of measuring.
"""

import difflib
import math
import re
from collections.abc import Mapping
from typing import Final

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.configuration.file import Configuration
from gpuprof.profiler.configuration.gate_settings import (
    Amount,
    BudgetSettings,
    GateSettings,
    Limits,
    WaiverSettings,
)
from gpuprof.roofline.gate.budget import Budget
from gpuprof.roofline.gate.counters import CounterBudget
from gpuprof.roofline.gate.measurement import COUNTERS, TIMED_METRICS
from gpuprof.roofline.gate.reported_metrics import REPORTED_METRICS
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.suite import METRIC_NAMES, BudgetRow, Rules, Waiver

_UNITS: Final[Mapping[str, float]] = {
    "": 1.0,
    "%": 0.01,
    "ns": 1.0,
    "us": 1e3,
    "µs": 1e3,
    "ms": 1e6,
    "s": 1e9,
    "B": 1.0,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "GB/s": 1e9,
    "TB/s": 1e12,
}
# Metrics of which a process has one figure, the gate's own and those of other tools' results.
_METRICS: Final = {**TIMED_METRICS, **REPORTED_METRICS}
_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "ns": ("ns", "us", "µs", "ms", "s"),
    "bytes": ("B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB"),
    "bytes/s": ("GB/s", "TB/s"),
    "tokens/s": ("",),
    "requests/s": ("",),
    "": ("", "%"),
}
_LONG_UNITS_S: Final[Mapping[str, float]] = {"s": 1, "min": 60, "h": 3600}
_NUMBER: Final = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([^\s0-9]*)\s*")


def suite_rules(configuration: Configuration, place: str) -> Rules:
    """All rules of a suite. Raises `CommandError` (exit 2), naming `place`."""
    return Rules(
        rule_settings(configuration.gate, place),
        budgets=tuple(budget_row(row, place) for row in configuration.budget),
        waivers=tuple(waiver(row, place) for row in configuration.waiver),
    )


def rule_settings(gate: GateSettings, place: str) -> RuleSettings:
    """The rule's settings. Raises `CommandError` (exit 2), naming `place`, for impossible ones."""
    try:
        return RuleSettings(
            alpha=fraction(gate.alpha, f"{place}: gate.alpha"),
            minimum_effect=fraction(gate.min_effect, f"{place}: gate.min_effect"),
            fail_above=fraction(gate.fail_above, f"{place}: gate.fail_above"),
            looks=gate.pairs,
        )
    except ValueError as error:
        raise CommandError(f"{place}: [gate]: {error}", exit_code=2) from error


def budget_row(settings: BudgetSettings, place: str) -> BudgetRow:
    """The budgets of one [[budget]]. Raises `CommandError` (exit 2), naming `place`."""
    metrics: dict[str, Budget] = {}
    counters: dict[str, CounterBudget] = {}
    for name in settings.__struct_fields__:
        limits = getattr(settings, name)
        if not isinstance(limits, Limits):
            continue
        where = f"{place}: budget {settings.match!r}: {name}"
        regress = None if limits.regress is None else fraction(limits.regress, f"{where}.regress")
        if name in _METRICS:
            unit = _METRICS[name].unit
            metrics[name] = Budget(
                regress=regress,
                maximum=_bound(limits.max, unit, f"{where}.max"),
                minimum=_bound(limits.min, unit, f"{where}.min"),
                level=limits.level,
            )
        elif limits.max is not None or limits.min is not None:
            raise CommandError(f"{where} has only regress: it is an exact count", exit_code=2)
        if name not in _METRICS:
            counters[name] = CounterBudget(regress=regress or 0.0, level=limits.level)
        elif name in COUNTERS:
            # An exact count on a GPU, a figure elsewhere.
            budget = metrics[name]
            counters[name] = CounterBudget(
                regress=budget.regress,
                maximum=budget.maximum,
                minimum=budget.minimum,
                level=budget.level,
            )
    kernels = settings.kernels
    if kernels is not None and kernels.max_count_regress is not None:
        where = f"{place}: budget {settings.match!r}: kernels.max_count_regress"
        counters["kernels"] = CounterBudget(
            regress=fraction(kernels.max_count_regress, where), level=kernels.level
        )
    return BudgetRow(
        match=settings.match,
        metrics=metrics,
        counters=counters,
        maximum_new_kernels=None if kernels is None else kernels.max_new,
        class_change=settings.class_change,
    )


def _bound(figure: Amount | None, unit: str, where: str) -> float | None:
    """An absolute limit. No value is below 0, and none has a logarithm there."""
    if figure is None:
        return None
    value = amount(figure, unit, where)
    if value == 0:
        raise CommandError(f"{where} is 0; give a limit above it", exit_code=2)
    return value


def waiver(settings: WaiverSettings, place: str) -> Waiver:
    """One waiver. Raises `CommandError` (exit 2) without a reason, and for an unknown metric."""
    if not settings.reason.strip():
        raise CommandError(f"{place}: waiver {settings.match!r} needs a reason", exit_code=2)
    if settings.metric is not None and settings.metric not in METRIC_NAMES:
        near = difflib.get_close_matches(settings.metric, METRIC_NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(METRIC_NAMES)}"
        raise CommandError(
            f"{place}: waiver {settings.match!r}: unknown metric {settings.metric!r}; {hint}",
            exit_code=2,
        )
    return Waiver(
        match=settings.match,
        reason=settings.reason,
        expires=settings.expires,
        metric=settings.metric,
    )


def fraction(figure: Amount, where: str) -> float:
    """A fraction from "3%" or 0.03. Raises `CommandError` (exit 2), naming `where`."""
    return amount(figure, "", where)


def time_span_s(text: str, where: str) -> float:
    """Seconds from "90 s", "10 min" or "1 h". Raises `CommandError` (exit 2), naming `where`."""
    found = _NUMBER.fullmatch(text)
    if found is None or found[2] not in _LONG_UNITS_S or not 0 < float(found[1]) < math.inf:
        raise CommandError(f"{where} is {text!r}; write it like 90 s or 10 min", exit_code=2)
    return float(found[1]) * _LONG_UNITS_S[found[2]]


def amount(figure: Amount, unit: str, where: str) -> float:
    """A figure in `unit`, from a number in it or text such as "412 ms".

    Raises `CommandError` (exit 2), naming `where`, for text of another kind.
    """
    accepted = _KINDS[unit]
    if not isinstance(figure, str):
        figure = float(figure)
        if not 0 <= figure < math.inf:
            raise CommandError(f"{where} is {figure}; it is a number from 0 on", exit_code=2)
        return figure
    found = _NUMBER.fullmatch(figure)
    if found is None or found[2] not in accepted:
        named = " or ".join(f"{'3' if u == '%' else '1.5'} {u}".strip() for u in accepted[:3])
        raise CommandError(f"{where} is {figure!r}; write it like {named}", exit_code=2)
    return float(found[1]) * _UNITS[found[2]] / _UNITS["ns" if unit == "ns" else ""]
