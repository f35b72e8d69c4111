"""A version with each of its configurations, not only with the one that is fastest at this size.

Each is another program for the compiler. Of Triton 3.6 it made wrong ones of some, which a check
at sizes where others are faster never ran.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar
from unittest import mock

import triton.testing

ResultT = TypeVar("ResultT")


class _Bench:
    """In the place of triton.testing.do_bench: the n-th run is the fastest, or else the first."""

    def __init__(self, fastest: int) -> None:
        self.fastest = fastest
        self.runs = 0

    def __call__(self, run: Callable[[], object], **_: object) -> float:
        run()
        self.runs += 1
        return float(self.runs != self.fastest)


def each_tiling(attempt: Callable[[], ResultT]) -> Iterator[ResultT]:
    """What `attempt` returns with each configuration tried in it as the fastest of its kernel."""
    fastest = 1
    while True:
        bench = _Bench(fastest)
        with mock.patch.object(triton.testing, "do_bench", bench):
            result = attempt()
        yield result
        fastest += 1
        if fastest > bench.runs:
            return
