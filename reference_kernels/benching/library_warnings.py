"""What libraries warn of while versions run: told after the tables, not within them."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gpuprof.collectors.plain_text import printable, shortened

_MOST_LETTERS: Final = 300


@contextmanager
def collecting_warnings() -> Iterator[list[str]]:
    """Within this context Python's warnings are not printed; afterwards the list holds each once.

    Python's filters apply again after it. It is for one thread, as `warnings.catch_warnings` is.
    """
    sentences: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            yield sentences
        finally:
            sentences += dict.fromkeys(map(_sentence, caught))


def _sentence(warned: warnings.WarningMessage) -> str:
    place = f"{Path(warned.filename).name}:{warned.lineno}"
    first, *_ = str(warned.message).strip().splitlines() or [""]
    return shortened(printable(f"{warned.category.__name__} at {place}: {first}"), _MOST_LETTERS)
