"""pytest plugin: tests that are benchmarks, compared with another commit by the gate.

    @pytest.mark.gpuprof(budget="5%")
    def test_forward(gpubench):
        model, batch = make()
        gpubench(model, batch)

Off by default: without an option of ours the fixture calls the function once, as any test would.
`--gpuprof-gate REF` measures the marked tests in pairs of fresh processes, of REF and of the
working tree, and fails those that regressed. Nothing here imports torch before it is needed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pytest

from gpuprof.profiler.gate.marked_tests import (
    DEFAULT_STEPS,
    MARKER,
    TARGET,
    Steps,
    benchmark_name,
)

if TYPE_CHECKING:
    from gpuprof.roofline.gate.result import GateResult

P = ParamSpec("P")
R = TypeVar("R")

_RESULT: pytest.StashKey["GateResult"] = pytest.StashKey()
_CALLED: pytest.StashKey[bool] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options."""
    group = parser.getgroup("gpuprof", "gpuprof: benchmarks compared with another commit")
    group.addoption(
        "--gpuprof-gate",
        metavar="REF",
        help="measure tests marked gpuprof against commit REF and fail what regressed",
    )
    group.addoption(
        "--gpuprof-time-limit",
        metavar="TIME",
        help="start no pair of --gpuprof-gate that would end later, such as '90 s' or '10 min'",
    )
    group.addoption(
        "--gpuprof-record",
        metavar="FOLDER",
        type=Path,
        help="store a capture of each test marked gpuprof in FOLDER (the gate uses this)",
    )
    group.addoption(
        "--gpuprof-only",
        metavar="NAME",
        action="append",
        default=[],
        help="record only this benchmark (the gate uses this; may be repeated)",
    )
    group.addoption(
        "--gpuprof-steps",
        metavar="W,T,P",
        default=DEFAULT_STEPS,
        help=f"warm-up, timed and profiled calls of each benchmark ({DEFAULT_STEPS})",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and refuse what cannot work."""
    config.addinivalue_line(
        "markers", f"{MARKER}(budget=None): a benchmark; budget is how much slower it may become"
    )
    given = [
        option
        for option in ("--gpuprof-gate", "--gpuprof-record")
        if config.getoption(option) is not None
    ]
    if len(given) > 1:
        raise pytest.UsageError(f"{' and '.join(given)} exclude each other")
    if given and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError(f"{given[0]} needs the machine for itself: run without xdist (-n0)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """While recording only benchmarks run: other tests would warm the machine differently."""
    if config.getoption("--gpuprof-record") is None:
        return
    only = frozenset(config.getoption("--gpuprof-only"))
    wanted = [
        item
        for item in items
        if item.get_closest_marker(MARKER) is not None
        and (not only or benchmark_name(item) in only)
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Measure everything first: a test that ran here would hold a context on the GPU."""
    config = session.config
    marked = [item for item in session.items if item.get_closest_marker(MARKER) is not None]
    if config.getoption("--gpuprof-gate") is None or config.option.collectonly or not marked:
        return
    from gpuprof.profiler.gate.pytest_session import gate_tests

    session.stash[_RESULT] = gate_tests(config, marked)


class GpuBench:
    """What the fixture `gpubench` gives: call it with a function and its arguments."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    def __call__(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` as a benchmark: once, or recorded often. Returns its last result."""
        self._request.node.stash[_CALLED] = True
        config = self._request.config
        folder = config.getoption("--gpuprof-record")
        if folder is None:
            return function(*args, **kwargs)
        from gpuprof.collectors.manifest import Schedule
        from gpuprof.profiler.run.benchmark_recording import record_benchmark

        steps = Steps.parse(config.getoption("--gpuprof-steps"))
        folder.mkdir(parents=True, exist_ok=True)
        return record_benchmark(
            lambda: function(*args, **kwargs),
            Schedule(warmup=steps.warmup, timed=steps.timed, profiled=steps.profiled),
            folder / f"{benchmark_name(self._request.node)}.gpuprof",
        )


@pytest.fixture
def gpubench(request: pytest.FixtureRequest) -> GpuBench:
    """Calls a function as a benchmark; the test must be marked gpuprof."""
    if request.node.get_closest_marker(MARKER) is None:
        pytest.fail(f"{request.node.name} uses gpubench: mark it @pytest.mark.gpuprof")
    return GpuBench(request)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """With --gpuprof-gate a marked test's outcome is the gate's verdict on it."""
    gated = item.config.getoption("--gpuprof-gate") is not None
    if not gated or item.get_closest_marker(MARKER) is None:
        return (yield)
    # What the test asserts is checked as ever.
    outcome = yield
    if not item.stash.get(_CALLED, False):
        return outcome
    verdict(item, item.session.stash[_RESULT])
    return outcome


def verdict(item: pytest.Item, result: "GateResult") -> None:
    """Fail or skip `item` by what the gate says of it; passing says nothing."""
    from gpuprof.reports.gate.reasons import last_words_of, reasons

    name = f"{TARGET}/{benchmark_name(item)}"
    own = [j for j in result.judgements if j.benchmark in (name, TARGET)]
    failed = [j for j in own if j.fails]
    if failed:
        lines = [f"{j.verdict} {j.metric.name}: {j.message}" for j in failed]
        lines += [
            f"  {line}"
            for explanation in result.explanations
            if explanation.benchmark == name
            for line in reasons(explanation, result).told
        ]
        lines += [f"  {line}" for j in failed for line in last_words_of(j, result)]
        pytest.fail("\n".join(lines), pytrace=False)
    undecided = [j for j in own if j.verdict in ("INCONCLUSIVE", "INCOMPARABLE")]
    if undecided:
        pytest.skip(f"{undecided[0].verdict}: {undecided[0].message}")
    if not own:
        pytest.fail(f"the gate measured nothing called {name}", pytrace=False)
