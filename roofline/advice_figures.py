"""What binds a step, and what to change in it: parts of an `Analysis`.

Frozen structs; unknown is None. Times are integer nanoseconds of one step, fractions are of 1.
"""

import msgspec

from gpuprof.roofline.classes import ClassName


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """What most of a step's time goes to, whether or not any of it could be gained."""

    # "compute" and "memory": work that this resource binds, at its roof or below.
    kind: ClassName
    nanoseconds: int
    fraction: float


class AdvicePlace(msgspec.Struct, frozen=True, kw_only=True):
    """One of the things that a piece of advice is about."""

    # An operator with its shapes, a call, a range.
    what: str
    # "train.py:42"; "" where the capture has no lines.
    place: str = ""
    # Path of the nn.Module; "" where unknown.
    module: str = ""
    gain_ns: int


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """One change to the program."""

    # A row of roofline/advice/findings.toml, and the bottleneck class that it is about.
    finding: str
    kind: ClassName
    # What to change, as a sentence.
    change: str
    # What shows it, with its figures.
    evidence: str
    # What the gain rests on.
    assumption: str
    # What a step would be shorter, and within which that lies.
    gain_ns: int
    gain_range_ns: tuple[int, int]
    # Why that is not narrower, where it is wide and the assumption does not say it; else "".
    uncertain: str = ""
    # Those with most of the gain, first; how many others there are.
    places: tuple[AdvicePlace, ...] = ()
    other_places: int = 0
