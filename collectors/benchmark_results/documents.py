"""The JSON documents of a file, and what stands at a path in one."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.memory_limit import MOST_BYTES, json_bytes
from gpuprof.collectors.files.source import whole_content

_REMEDY = "save it without the details of each request"
_BLANK = re.compile(r"\s*")
# Far more than any figure of a benchmark, so that sums, units and int64 have room.
_LARGEST_NUMBER = 1e18
_LONGEST_INTEGER = 18


@dataclass(frozen=True)
class Document:
    """One JSON object of a file."""

    path: Path
    # Of the file, from 1, on which the object begins; 0 where it is the only one.
    line: int
    content: dict[str, Any]

    @property
    def place(self) -> str:
        """The file, and the line where there are several objects."""
        return f"{self.path}, line {self.line}" if self.line else str(self.path)

    def at(self, path: str) -> Any:
        """What stands at the dotted `path`; None where nothing does."""
        value: Any = self.content
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def number(self, path: str) -> float | None:
        """The number at `path`; None where there is none. Raises `CaptureError` for no number."""
        value = self.at(path)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(path, f"{value!r}"[:80], expected="a number")
        return self.checked(path, float(value))

    def checked(self, path: str, value: float) -> float:
        """`value`, which stands at `path`. Raises `CaptureError` where it is no possible figure."""
        if not abs(value) < _LARGEST_NUMBER:
            raise self.error(path, f"is {value}", remedy="run the benchmark again")
        return value

    def error(self, path: str, problem: str, *, expected: str = "", remedy: str = "") -> Exception:
        """What is wrong at `path`."""
        place = f"line {self.line}, {path}" if self.line else path
        return CaptureError(self.path, problem, place=place, expected=expected, remedy=remedy)


def nanoseconds(seconds: float) -> int | None:
    """A time as int64 ns; None where it is none that a clock shows."""
    return round(seconds * 1e9) if abs(seconds) < 1 << 32 else None


def documents(path: Path) -> tuple[Document, ...]:
    """The objects of `path`: one, an array of them, or one after the other (JSON Lines).

    Plain or gzip. NaN and Infinity are read as Python writes them: SGLang's request rate is one.
    Raises `CaptureError`.
    """
    content = whole_content(path, MOST_BYTES, what="a benchmark's result", remedy=_REMEDY)
    if json_bytes(content) > MOST_BYTES:
        raise CaptureError(path, "a benchmark's result that is too large", remedy=_REMEDY)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CaptureError(path, "is no text", expected="JSON in UTF-8") from error
    found = list(_objects(path, text))
    if len(found) == 1:
        return (Document(path, 0, found[0][1]),)
    return tuple(Document(path, line, item) for line, item in found)


def _objects(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    decoder = json.JSONDecoder(parse_int=_integer)
    end, line, counted = 0, 1, 0
    while True:
        blank = _BLANK.match(text, end)
        start = blank.end() if blank else end
        if start == len(text):
            return
        line += text.count("\n", counted, start)
        counted = start
        try:
            value, end = decoder.raw_decode(text, start)
        # A file of brackets nests deeper than Python recurses.
        except (json.JSONDecodeError, RecursionError) as error:
            wrong = error.lineno if isinstance(error, json.JSONDecodeError) else line
            raise CaptureError(
                path,
                "is no JSON",
                place=f"line {wrong}",
                expected="the result of a benchmark",
                remedy="run it again if it was cut off",
            ) from error
        for item in value if isinstance(value, list) else (value,):
            if not isinstance(item, dict):
                raise CaptureError(
                    path, f"{item!r}"[:80], place=f"line {line}", expected="a result"
                )
            yield line, item


def _integer(text: str) -> float:
    """Of thousands of digits Python makes no integer."""
    return int(text) if len(text) <= _LONGEST_INTEGER else float(text)
