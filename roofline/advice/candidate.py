"""A gain that was found, before gains are put together and ranked."""

from dataclasses import dataclass

from gpuprof.roofline.module_figures import SourceLine
from gpuprof.roofline.points.classify import WorkKey


@dataclass(frozen=True)
class Gain:
    """What a change would save in one step: what is likely, and within which that lies."""

    ns: int
    least_ns: int
    most_ns: int

    def __add__(self, other: "Gain") -> "Gain":
        return Gain(
            self.ns + other.ns, self.least_ns + other.least_ns, self.most_ns + other.most_ns
        )

    def share(self, fraction: float) -> "Gain":
        """So much of it."""
        return Gain(*(round(each * fraction) for each in (self.ns, self.least_ns, self.most_ns)))

    def at_most(self, limit_ns: int) -> "Gain":
        """The same where no more than `limit_ns` can be gained."""
        return Gain(
            *(max(0, min(each, limit_ns)) for each in (self.ns, self.least_ns, self.most_ns))
        )


@dataclass(frozen=True)
class Candidate:
    """One thing that could be changed at one place."""

    # A row of findings.toml.
    finding: str
    # What it is about: an operator with its shapes, a call, a range; "" for small ones together.
    what: str
    gain: Gain
    evidence: str
    # Why the gain is not known better; "" where it is, or where the assumption says it.
    uncertain: str = ""
    place: str = ""
    module: str = ""
    # Whether the step gets shorter only as far as the host launches faster than the device works.
    of_device: bool = True
    # The device work that it would shorten.
    covers: frozenset[WorkKey] = frozenset()


def line_text(source: SourceLine | None) -> str:
    """The line as people write it, "" where it is unknown."""
    return "" if source is None else source.text
