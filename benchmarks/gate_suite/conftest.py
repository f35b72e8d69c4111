"""`--inject NAME=SHARE` makes one benchmark of the suite slower by about that share of its work."""

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --inject."""
    parser.addoption(
        "--inject", default="", metavar="NAME=SHARE", help="make benchmark NAME slower by SHARE"
    )


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
