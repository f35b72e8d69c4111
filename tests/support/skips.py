"""What was not tested is said in the last line, and CI fails on a skip it does not expect.

A pytest plugin. `expected_skips.toml` lists the reasons that CI expects.
"""

import os
import re
from collections import Counter
from collections.abc import Generator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

EXPECTED_SKIPS = Path(__file__).parents[1] / "expected_skips.toml"


def expected_reasons() -> tuple[str, ...]:
    """Regular expressions of the reasons that hold with the torch that is installed."""
    rows = tomllib.loads(EXPECTED_SKIPS.read_text(encoding="utf-8"))["skip"]
    torch = version("torch")
    return tuple(
        row["reason"]
        for row in rows
        if SpecifierSet(row.get("torch", "")).contains(torch, prereleases=True)
    )


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Why a test or a file was skipped; None where it was not, or failed as expected."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return None
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def _refuse_unexpected(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make a failure of a skip that CI does not expect."""
    reason = reason_of(report)
    if reason is None or os.environ.get("CI", "").lower() not in ("1", "true"):
        return
    if not any(re.fullmatch(pattern, reason, re.DOTALL) for pattern in expected_reasons()):
        report.outcome = "failed"
        report.longrepr = (
            f"{report.nodeid} was skipped, and CI does not expect that: {reason}\n"
            f"Install what it needs, or add the reason to {EXPECTED_SKIPS.name}."
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_unexpected(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_unexpected(report)
    return report


# Outermost, so that its line comes after that of the terminal's reporter.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, Any, Any]:
    result = yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    # A worker of xdist has none; its reports come to the process that has.
    if reporter is not None:
        reasons = Counter(filter(None, map(reason_of, reporter.stats.get("skipped", ()))))
        if reasons:
            parts = [f"{count} ({reason})" for reason, count in reasons.most_common()]
            reporter.write_line(f"Not tested here: {', '.join(parts)}")
    return result
