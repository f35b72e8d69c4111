"""What workers run in the tests of `gpuprof.profiler.cluster`: they import it by name."""

import os
import signal
from pathlib import Path
from typing import Any

import distributed
import polars as pl

from gpuprof.collectors.errors import CaptureError


def read(place: str) -> tuple[bytes, ...]:
    """The content of a file, unless its name says what happens instead."""
    path = Path(place)
    if path.name == "kills":
        os.kill(os.getpid(), signal.SIGKILL)
    if path.name in ("kills once", "fails once") and not path.with_name(f"{path.name}!").exists():
        path.with_name(f"{path.name}!").touch()
        if path.name == "kills once":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError("no route to host")
    if path.name == "fails":
        raise OSError("no route to host")
    if path.name == "damaged":
        raise CaptureError(path, "no events", place="byte 7")
    return (path.read_bytes(), str(os.getpid()).encode())


def what_is_costly() -> tuple[int, list[str]]:
    """Threads that polars takes in a worker, and what it calls to note the stacks of its tasks."""
    worker: Any = distributed.get_worker()
    noting = [name for name in worker.periodic_callbacks if name.startswith("profile")]
    return pl.thread_pool_size(), noting
