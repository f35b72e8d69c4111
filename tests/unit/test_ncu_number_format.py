from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.ncu.number_format import NumberFormat, infer

FILE = Path("report.csv")


def inferred(*texts: str) -> NumberFormat:
    return infer(FILE, [(f"line {number}", text) for number, text in enumerate(texts)])


@pytest.mark.parametrize(
    ("texts", "decimal"),
    [
        (["1,234.56"], "."),
        (["1.234,56"], ","),
        (["1,099,511,627,776"], "."),
        (["1.099.511.627.776"], ","),
        # Three digits end a group of thousands; two or four cannot.
        (["71.20", "1,234"], "."),
        (["1,11", "1.234"], ","),
        (["42.400000"], "."),
        (["0.123"], "."),
        (["1234.567"], "."),
        (["12,34,567"], "."),
        (["512", "0", "2048500000"], "."),
        (["n/a", "", "no data", "nan", "PolicySpread"], "."),
    ],
)
def test_the_decimal_separator_is_inferred_over_the_file(texts: list[str], decimal: str) -> None:
    assert inferred(*texts).decimal == decimal


@pytest.mark.parametrize("texts", [["1,234"], ["1.234"], ["512", "12,345"], ["1,234", "5.678"]])
def test_an_undecidable_file_is_refused_with_the_value(texts: list[str]) -> None:
    with pytest.raises(CaptureError, match=r"cannot be told.*line \d: .*--print-units base"):
        inferred(*texts)


def test_two_formats_in_one_file_are_refused() -> None:
    with pytest.raises(CaptureError, match="two formats"):
        inferred("1,234.56", "1.234,56")


@pytest.mark.parametrize(
    ("decimal", "text", "value"),
    [
        (".", "1,234.56", "1234.56"),
        (",", "1.234,56", "1234.56"),
        (",", "1,11", "1.11"),
        (".", "-0.084152", "-0.084152"),
        (".", "1'234.5", "1234.5"),
        (",", "1\u202f234,5", "1234.5"),
        (".", "1.5e+06", "1500000"),
        (".", "12 (3; 4; 5)", "12"),
    ],
)
def test_numbers_are_exact(decimal: str, text: str, value: str) -> None:
    assert NumberFormat("," if decimal == "," else ".").parse(text) == Decimal(value)


@pytest.mark.parametrize(
    "text", ["", "n/a", "(!) nan", "nan", "no data", "inf", "12 GB", "1,2,3", "1.2.3", "--1", "٣"]
)
def test_what_is_no_number_is_missing(text: str) -> None:
    assert NumberFormat(".").parse(text) is None


def written(value: Decimal, group: str, decimal: str) -> str:
    return f"{value:,}".replace(",", "g").replace(".", decimal).replace("g", group)


@given(
    st.lists(st.decimals(-(10**15), 10**15, places=2), min_size=1, max_size=20),
    st.sampled_from([(",", "."), (".", ","), ("'", "."), ("\u202f", ","), ("", ".")]),
)
def test_what_a_locale_writes_is_read_back(
    values: Sequence[Decimal], separators: tuple[str, str]
) -> None:
    texts = [written(value, *separators) for value in values]
    number_format = inferred(*texts)
    assert [number_format.parse(text) for text in texts] == list(values)


@given(st.lists(st.text(alphabet="0123456789.,'eE+-() n/a", max_size=12), max_size=8))
def test_any_text_gives_numbers_none_or_a_refusal(texts: list[str]) -> None:
    try:
        number_format = inferred(*texts)
    except CaptureError:
        return
    for text in texts:
        value = number_format.parse(text)
        assert value is None or value.is_finite()
