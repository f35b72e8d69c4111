"""Options of the suite: a benchmark made slower, and a start that waits for a word.

`--inject NAME=SHARE` makes one benchmark slower by about that share of its work. `--wait-for FILE`
imports and collects, then waits for FILE to exist: so the next process can start while another
still measures, without touching the GPU.
"""

import time
from pathlib import Path

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --inject."""
    parser.addoption(
        "--inject", default="", metavar="NAME=SHARE", help="make benchmark NAME slower by SHARE"
    )
    parser.addoption("--wait-for", type=Path, metavar="FILE", help="begin when FILE exists")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Wait, as --wait-for asks; what the benchmarks import is imported before."""
    file = session.config.getoption("--wait-for")
    if file is not None:
        import gpuprof.profiler.run.benchmark_recording  # noqa: F401
    while file is not None and not file.exists():
        time.sleep(0.005)


@pytest.fixture
def device() -> torch.device:
    """The GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def injected(request: pytest.FixtureRequest) -> float:
    """By which share this test's work grows; 0 for all but the one that --inject names."""
    name, _, share = request.config.getoption("--inject").partition("=")
    own = request.node.originalname.removeprefix("test_")
    return float(share) if name == own else 0.0
