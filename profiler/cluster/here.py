"""Reads files one after the other in this process."""

from collections.abc import Iterator, Sequence

from gpuprof.collectors.errors import describe
from gpuprof.profiler.cluster.outcome import Outcome, ReadFile, read_outcome


def read_here(read: ReadFile, places: Sequence[str]) -> Iterator[Outcome]:
    """The outcome of each of `places`, in their order."""
    return (_outcome(read, place) for place in places)


def _outcome(read: ReadFile, place: str) -> Outcome:
    try:
        return read_outcome(read, place)
    except OSError as error:
        return Outcome(place, problem=describe(error))
