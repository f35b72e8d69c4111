"""What a hostile input is: a reader, what damages its files, and what their end must be.

The end of any input is what was read, or one line that says what is wrong.
"""

import gzip
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final
from unittest.mock import patch

from in_process import Done, run_in_process
from mutations import damaged_bytes

from gpuprof.collectors.errors import GpuprofError, describe
from gpuprof.collectors.files import source
from gpuprof.collectors.kineto import blocks
from gpuprof.reports.markdown import INVISIBLE_SPACE

LONGEST_LINE: Final = 300
# Of inputs, those that are damaged with a look at what they hold.
AWARE: Final = 0.7
Damage = Callable[[random.Random, bytes], bytes]


@dataclass(frozen=True)
class HostileReader:
    """One reader. `write` makes a damaged input in an empty folder, `read` is what reads it."""

    name: str
    write: Callable[[random.Random, Path], Path]
    read: Callable[[Path], object]
    # The command lines that read such a file; they may write into the folder.
    commands: Callable[[Path, Path], Sequence[Sequence[object]]]


def read_damaged(reader: HostileReader, number: int, folder: Path) -> str:
    """Read the input with this number; returns the line it was refused with, or "".

    Raises `AssertionError` where that is no one printable line, and whatever else escapes.
    """
    path = reader.write(random.Random(f"{reader.name} {number}"), folder)
    try:
        with _small_blocks():
            reader.read(path)
    except GpuprofError as error:
        _check_line(describe(error), path)
        return str(error)
    return ""


def run_commands(reader: HostileReader, number: int, folder: Path) -> int:
    """Give the input with this number to the commands that read such; how many could use it."""
    path = reader.write(random.Random(f"{reader.name} {number}"), folder)
    used = 0
    for command in reader.commands(path, folder):
        code, output, said = run_command([str(word) for word in command])
        _check_printable(output)
        _check_printable(said)
        # A verdict is no refusal, whatever its exit code.
        if code and not (command[0] == "gate" and output):
            *_, last = said.splitlines()
            assert last.startswith("gpuprof: "), said[-500:]
            _check_line(last, path)
        used += code == 0
    return used


def run_command(command: list[str]) -> Done:
    """The exit code of a command in this process, and what it wrote on stdout and stderr."""
    with _small_blocks():
        return run_in_process(command)


def _check_line(line: str, path: Path) -> None:
    assert line.isprintable(), ascii(line[:500])
    # Where the file is does not count.
    assert len(line.replace(str(path), "")) <= LONGEST_LINE, line[:1000]


def _check_printable(text: str) -> None:
    for line in text.splitlines():
        assert (
            line.replace("\N{NARROW NO-BREAK SPACE}", "")
            .replace("\N{NO-BREAK SPACE}", "")
            # In Markdown, after what would be a link.
            .replace(INVISIBLE_SPACE, "")
            .isprintable()
        ), ascii(line)


@contextmanager
def _small_blocks() -> Iterator[None]:
    """Small traces are cut into blocks as large ones are."""
    with (
        patch.object(blocks, "BLOCK_BYTES", 3000),
        patch.object(blocks, "_LONGEST_PLAUSIBLE", 1 << 16),
        patch.object(source, "PIECE_BYTES", 1000),
    ):
        yield


def damaged_file(
    name: str, contents: Callable[[], Sequence[bytes]], aware: Damage, *, packed: float = 0.0
) -> Callable[[random.Random, Path], Path]:
    """Writes one of `contents`, damaged, as a file called `name`; some of them compressed."""
    originals = lru_cache(maxsize=1)(contents)

    def write(chance: random.Random, folder: Path) -> Path:
        content = chance.choice(originals())
        is_aware = chance.random() < AWARE
        content = (aware if is_aware else damaged_bytes)(chance, content)
        if chance.random() < packed:
            content = gzip.compress(content, 1, mtime=0)
            if not is_aware and chance.random() < 0.3:
                content = damaged_bytes(chance, content)
        path = folder / name
        path.write_bytes(content)
        return path

    return write


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """One that is removed."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
