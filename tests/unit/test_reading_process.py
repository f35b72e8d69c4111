"""polars of a process that reads traces: few threads, and nothing left in the environment."""

import os
import subprocess
import sys

from gpuprof.collectors.live.fingerprint import usable_cores

# polars itself sets the second, which a child of a process with polars inherits.
_OF_POLARS = ("POLARS_MAX_THREADS", "_RJEM_MALLOC_CONF")
_READ = """
import os
from gpuprof.profiler.reading_process import import_polars
before = dict(os.environ)
import_polars()
assert dict(os.environ) == before
import polars
print(polars.thread_pool_size())
"""


def threads(**environment: str) -> int:
    """How many polars has in a process that reads, with these variables of polars."""
    inherited = {name: value for name, value in os.environ.items() if name not in _OF_POLARS}
    done = subprocess.run(
        [sys.executable, "-c", _READ],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def test_threads_are_few() -> None:
    assert threads() == min(4, usable_cores() or 1)


def test_what_the_user_set_stays() -> None:
    assert threads(POLARS_MAX_THREADS="7") == 7
