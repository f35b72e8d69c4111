"""Changes as people read them."""

from gpuprof.reports import formatting


def delta(nanoseconds: float | None) -> str:
    """A change of time with its sign: "+12.0 µs"; "0" where it is under a tenth of a ns."""
    if nanoseconds is None:
        return formatting.UNKNOWN
    if abs(nanoseconds) < 0.1:
        return "0"
    return f"{'+' if nanoseconds > 0 else '-'}{formatting.duration(abs(nanoseconds))}"


def signed_percent(fraction: float | None) -> str:
    """A change as a percentage with its sign: "+3.2%"."""
    if fraction is None:
        return formatting.UNKNOWN
    return f"{fraction * 100:+.1f}%"


def before_after(before: str, after: str) -> str:
    """ "before → after", once where both are the same."""
    return before if before == after else f"{before} → {after}"
