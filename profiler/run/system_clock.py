"""What is said where the system's clock was set while a program ran."""

from gpuprof.collectors.live.unix_clock import UnixClock
from gpuprof.profiler.run.observations import Observations

# A time service may steer the clock by half of that.
_STEERED_SHARE = 1 / 1000
_STEERED_NS = 1_000_000_000


def clock_warnings(clock: UnixClock, seen: Observations) -> tuple[str, ...]:
    """A sentence where `clock`, made when `seen` began, was set since; `seen` has ended."""
    assert seen.ended_ns is not None
    set_by_ns = clock.set_by_ns()
    if abs(set_by_ns) <= (seen.ended_ns - seen.started_ns) * _STEERED_SHARE + _STEERED_NS:
        return ()
    direction = "back" if set_by_ns < 0 else "forward"
    return (
        f"the system's clock was set {direction} by {abs(set_by_ns) / 1e9:.0f} s while "
        "the program ran: samples of the device may not belong to its steps",
    )
