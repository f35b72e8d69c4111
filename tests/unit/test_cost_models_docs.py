"""The examples of docs/numbers.md give what they say."""

import doctest
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "numbers.md"


def test_the_examples_of_the_page_on_numbers_hold() -> None:
    failures, attempts = doctest.testfile(str(PAGE), module_relative=False)
    assert attempts >= 10
    assert failures == 0
