"""Bus bandwidth: the figures of the case nccl-factors."""

from pathlib import Path

import pytest

from gpuprof.collectors import kineto
from gpuprof.roofline.bus_bandwidth import CollectiveName, bus_factor

CASE = Path(__file__).parents[1] / "data" / "kineto" / "nccl-factors.json"


@pytest.mark.parametrize(
    ("row", "collective", "algorithm_gb_per_s", "bus_gb_per_s"),
    [
        (0, "all-reduce", 67.109, 117.441),
        (1, "all-gather", 33.554, 29.360),
        (2, "reduce-scatter", 33.554, 29.360),
        (3, "all-to-all", 16.777, 14.680),
        (4, "broadcast", 33.554, 33.554),
        # One rank: nothing crosses a link.
        (7, "all-reduce", 0.000004, 0.0),
    ],
)
def test_the_case_nccl_factors(
    row: int, collective: CollectiveName, algorithm_gb_per_s: float, bus_gb_per_s: float
) -> None:
    kernel = kineto.read(CASE).kernels.row(row, named=True)
    rate = kernel["message_bytes"] / (kernel["end_ns"] - kernel["start_ns"])
    assert rate == pytest.approx(algorithm_gb_per_s, abs=0.0005)
    bus = rate * bus_factor(collective, kernel["group_size"])
    assert bus == pytest.approx(bus_gb_per_s, abs=0.0005)
