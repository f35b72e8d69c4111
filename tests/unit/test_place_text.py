"""Places in a program, as people write them."""

import pytest

from gpuprof.collectors.place_text import place_text


@pytest.mark.parametrize(
    ("file", "line", "text"),
    [
        ("/a/b.py", 3, "b.py:3"),
        ("b.py", None, "b.py"),
        ("a/b.py", 3, "a/b.py:3"),
        (None, 3, ""),
        ("", None, ""),
        ("C:\\d\\e.py", 1, "e.py:1"),
    ],
)
def test_a_place_is_without_folders_elsewhere(
    file: str | None, line: int | None, text: str
) -> None:
    assert place_text(file, line) == text
