"""Every reader of a file, given damaged ones: it reads, or ends with one printable line.

`scripts/fuzz_readers.py` gives them more, and hands them to commands too.
"""

import importlib.util
from collections import Counter
from pathlib import Path

import pytest
from hostile_inputs import READERS
from hostile_reader import read_damaged

INPUTS = 300
# Summaries of ranks are analysed as a whole job.
FEWER = {"ranks": 100}


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    if name == "ncu-rep" and importlib.util.find_spec("ncu_report") is None:
        pytest.skip("ncu-report is not installed")
    ends: Counter[str] = Counter()
    for number in range(FEWER.get(name, INPUTS)):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            refusal = read_damaged(READERS[name], number, folder)
        except BaseException as error:
            again = f"scripts/fuzz_readers.py --reader {name} --start {number} --count 1"
            raise AssertionError(f"{again}: {error!r}") from error
        ends["refused" if refusal else "read"] += 1
    # Both ends must be reached, or the damage tests nothing.
    assert ends["refused"] > 0
    assert ends["read"] > 0
