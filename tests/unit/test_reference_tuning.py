"""The fastest configuration is taken, those that do not fit are left out."""

from collections.abc import Callable

import pytest
import triton
import triton.testing

from gpuprof.reference_kernels.suite import UnsupportedError
from gpuprof.reference_kernels.tuning import fastest

MILLISECONDS = {"slow": 3.0, "fast": 1.0, "middling": 2.0}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Configurations that were run, each timed as MILLISECONDS says."""
    done: list[str] = []

    def timed(run: Callable[[], object], **_: object) -> float:
        run()
        return MILLISECONDS[done[-1]]

    monkeypatch.setattr(triton.testing, "do_bench", timed)
    return done


def test_the_fastest_is_chosen_after_running_each(runs: list[str]) -> None:
    assert fastest(list(MILLISECONDS), runs.append) == "fast"
    assert runs == list(MILLISECONDS)


def test_what_does_not_fit_is_left_out(runs: list[str]) -> None:
    def run(configuration: str) -> None:
        if configuration == "fast":
            raise triton.runtime.errors.OutOfResources(2, 1, "shared memory")
        runs.append(configuration)

    assert fastest(list(MILLISECONDS), run) == "middling"


def test_where_nothing_fits_the_version_is_unsupported(runs: list[str]) -> None:
    def run(_: str) -> None:
        raise triton.runtime.errors.OutOfResources(2, 1, "shared memory")

    with pytest.raises(UnsupportedError, match="fits this GPU"):
        fastest(list(MILLISECONDS), run)
