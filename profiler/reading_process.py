"""polars as a process wants it that reads traces and runs no program.

polars has a thread a core and its allocator four arenas a core. The tables of a trace keep a few
threads busy: more of them wait for each other, and each arena keeps pages of its own. Both are
settled when polars is imported, from the environment.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from gpuprof.collectors.live.fingerprint import usable_cores

# With 16 on two cores reading and analysing 171 MB took a fifth more CPU time than with 4.
_MOST_THREADS: Final = 4
# An option of jemalloc. The largest resident set of the same was a tenth less.
_ALLOCATOR: Final = "narenas:1"


def import_polars() -> None:
    """Import polars for tables of traces, unless the process has it already.

    What the user set in the environment stays, and what is started later inherits nothing.
    """
    if "polars" in sys.modules:
        return
    threads = str(min(usable_cores() or 1, _MOST_THREADS))
    with _defaults({"POLARS_MAX_THREADS": threads, "_RJEM_MALLOC_CONF": _ALLOCATOR}):
        import polars

        # Its threads are not there before someone asks for them.
        polars.thread_pool_size()


@contextmanager
def _defaults(values: Mapping[str, str]) -> Iterator[None]:
    """Within this context the environment has `values` where it has none of that name."""
    added = values.keys() - os.environ.keys()
    os.environ.update({name: values[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
