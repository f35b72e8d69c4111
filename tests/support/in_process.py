"""Commands in the process of the tests, with streams of their own."""

import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from gpuprof.profiler import cli


class Done(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    output: str
    said: str


def run_in_process(command: Sequence[str]) -> Done:
    """Run `gpuprof COMMAND`."""
    output, said = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with redirect_stdout(output), redirect_stderr(said):
        code = cli.main(command)
    return Done(code, *map(_text, (output, said)))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()
