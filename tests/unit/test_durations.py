"""Times inside sentences have no exponents, however long or short."""

import pytest

from gpuprof.roofline.durations import duration, microseconds


@pytest.mark.parametrize(
    ("nanoseconds", "digits", "expected"),
    [
        (1_606_300_000, 3, "1.61 s"),
        (1_606_300_000, 4, "1.606 s"),
        (123_456_789_000_000, 3, "123000 s"),
        (22_770_000, 4, "22.77 ms"),
        (301_000, 3, "301 µs"),
        (1_234, 3, "1.23 µs"),
        (12, 3, "12 ns"),
        (0.004, 3, "0.004 ns"),
        (0, 3, "0"),
    ],
)
def test_a_time_is_in_the_unit_that_suits_it(
    nanoseconds: float, digits: int, expected: str
) -> None:
    assert duration(nanoseconds, digits) == expected


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [(278.3, "0.278 µs"), (45_678_000, "45700 µs"), (0.004, "0.000004 µs")],
)
def test_microseconds(nanoseconds: float, expected: str) -> None:
    assert microseconds(nanoseconds) == expected
