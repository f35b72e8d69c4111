"""Damaged exports end in a Capture or a CaptureError, never in another exception or a hang."""

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuprof.collectors import nsys
from gpuprof.collectors.errors import CaptureError

EXPORT = gzip.decompress(
    (
        Path(__file__).resolve().parents[1] / "data" / "nsys" / "h200_cudagraph_nodes.sqlite.gz"
    ).read_bytes()
)
PAGE_BYTES = 4096


def survives(path: Path, content: bytes) -> bool:
    """Whether the content is read; CaptureError is the only other way out."""
    path.write_bytes(content)
    try:
        nsys.read(path)
    except CaptureError:
        return False
    return True


@given(st.lists(st.tuples(st.integers(0, len(EXPORT) - 1), st.integers(0, 255)), max_size=40))
@settings(max_examples=60, deadline=None)
def test_changed_bytes(changes: list[tuple[int, int]]) -> None:
    content = bytearray(EXPORT)
    for position, value in changes:
        content[position] = value
    survives(SCRATCH / "changed.sqlite", bytes(content))


@given(st.binary(max_size=3000))
@settings(max_examples=60, deadline=None)
def test_any_bytes_after_the_magic(content: bytes) -> None:
    survives(SCRATCH / "any.sqlite", b"SQLite format 3\x00" + content)


def cut(generator: random.Random, content: bytearray) -> None:
    del content[generator.randrange(len(content)) :]


def swap_pages(generator: random.Random, content: bytearray) -> None:
    pages = len(content) // PAGE_BYTES
    for _ in range(generator.randrange(1, 4)):
        to, source = generator.randrange(1, pages), generator.randrange(1, pages)
        content[to * PAGE_BYTES : (to + 1) * PAGE_BYTES] = EXPORT[
            source * PAGE_BYTES : (source + 1) * PAGE_BYTES
        ]


def change_page_headers(generator: random.Random, content: bytearray) -> None:
    for _ in range(generator.randrange(1, 6)):
        page = generator.randrange(len(content) // PAGE_BYTES)
        content[page * PAGE_BYTES + generator.randrange(12)] = generator.randrange(256)


def change_texts(generator: random.Random, content: bytearray) -> None:
    position = content.find(b"CREATE TABLE", generator.randrange(PAGE_BYTES))
    for _ in range(generator.randrange(1, 30)):
        content[position + generator.randrange(600)] = generator.randrange(256)


@pytest.mark.parametrize("damage", [cut, swap_pages, change_page_headers, change_texts])
def test_damage_that_sqlite_files_suffer(
    damage: Callable[[random.Random, bytearray], None], tmp_path: Path
) -> None:
    generator = random.Random(damage.__name__)
    read = 0
    for _ in range(60):
        content = bytearray(EXPORT)
        damage(generator, content)
        read += survives(tmp_path / "damaged.sqlite", bytes(content))
    assert read < 60


@pytest.fixture(autouse=True, scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One folder for the property tests, whose examples share a function's fixtures."""
    global SCRATCH
    SCRATCH = tmp_path_factory.mktemp("fuzz")


SCRATCH: Path
