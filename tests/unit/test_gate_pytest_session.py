"""The gate of a pytest session: what its options become."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuprof.profiler.gate import pytest_session


class NoPrograms:
    """Sides of which nothing is started."""

    def __init__(self, *_: object) -> None: ...

    @contextmanager
    def base(self, *_: object) -> Iterator[None]:
        yield

    def head(self, *_: object) -> None: ...


@pytest.mark.parametrize(("given", "expected"), [(None, None), ("90 s", 90.0), ("2 min", 120.0)])
def test_the_time_limit_reaches_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, expected: float | None
) -> None:
    plans: list[Any] = []

    def no_gate(plan: object) -> SimpleNamespace:
        plans.append(plan)
        return SimpleNamespace(processes=())

    monkeypatch.setattr(pytest_session, "run_gate", no_gate)
    monkeypatch.setattr(pytest_session, "Preparation", NoPrograms)
    options = {
        "--gpuprof-gate": "HEAD",
        "--gpuprof-steps": "1,4,1",
        "--gpuprof-time-limit": given,
    }
    config: Any = SimpleNamespace(getoption=options.__getitem__, rootpath=tmp_path)
    marked: Any = SimpleNamespace(
        nodeid="test_speed.py::test_it", get_closest_marker=lambda name: None
    )
    pytest_session.gate_tests(config, [marked])
    assert [plan.time_limit_s for plan in plans] == [expected]
