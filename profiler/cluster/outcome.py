"""What became of one file."""

from collections.abc import Callable
from dataclasses import dataclass

from gpuprof.collectors.errors import CaptureError, GpuprofError, reason

# Reads one path or address. What it returns travels over the network.
ReadFile = Callable[[str], tuple[bytes, ...]]


@dataclass(frozen=True)
class Outcome:
    """What was read of the file or folder `place`, or what was wrong with it."""

    place: str
    # Of each rank in it.
    summaries: tuple[bytes, ...] = ()
    # A clause; "" where it was read.
    problem: str = ""


def read_outcome(read: ReadFile, place: str) -> Outcome:
    """What `read` makes of `place`. That the file itself is at fault is an outcome, no error.

    Other errors, as of a network, are raised: another try may succeed.
    """
    try:
        return Outcome(place, read(place))
    except CaptureError as error:
        where = f"{error.place}: " if error.place else ""
        return Outcome(place, problem=f"{where}{error.problem}")
    except GpuprofError as error:
        return Outcome(place, problem=reason(error))
