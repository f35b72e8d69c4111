"""Times inside sentences have no exponents, however long or short."""

import pytest

from gpuprof.roofline.durations import microseconds, milliseconds


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [
        (1_606_300_000, "1606 ms"),
        (123_456_789_000, "123500 ms"),
        (22_770_000, "22.77 ms"),
        (1, "0.000001 ms"),
        (0, "0 ms"),
    ],
)
def test_milliseconds(nanoseconds: int, expected: str) -> None:
    assert milliseconds(nanoseconds) == expected


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [(278.3, "0.278 us"), (45_678_000, "45700 us"), (0.004, "0.000004 us")],
)
def test_microseconds(nanoseconds: float, expected: str) -> None:
    assert microseconds(nanoseconds) == expected
