"""Keeps the bytecode of what a gate's processes import, where nobody else does."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import cache_from_source, find_spec
from pathlib import Path

_NEVER_WRITTEN = "PYTHONDONTWRITEBYTECODE"
_ELSEWHERE = "PYTHONPYCACHEPREFIX"


@contextmanager
def kept_bytecode(python: str) -> Iterator[Mapping[str, str | None]]:
    """What to set in the environment of processes of `python` in this context; None removes.

    An installer may leave torch without bytecode, and the folder or the environment may forbid
    that Python writes it: a process then compiles some 1,700 files, 4 s of the 13 s that it takes
    on a GPU's host, and so does each one after it. They share a folder here. Nothing is set where
    bytecode is kept anyway, and for an interpreter other than ours, of which that is not known.
    """
    if python != sys.executable or not _is_lost():
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="gpuprof-bytecode-") as folder:
        yield {_ELSEWHERE: folder, _NEVER_WRITTEN: None}


def _is_lost() -> bool:
    spec = find_spec("torch")
    if spec is None or spec.origin is None or os.environ.get(_ELSEWHERE):
        return False
    kept = Path(cache_from_source(spec.origin))
    if kept.exists():
        return False
    return bool(os.environ.get(_NEVER_WRITTEN)) or not os.access(kept.parent.parent, os.W_OK)
