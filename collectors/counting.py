"""The second run of a program, in which Nsight Compute counted some of its launches."""

import msgspec


class CountingPass(msgspec.Struct, frozen=True, kw_only=True):
    """Which launches were to be counted, of what, and what it took."""

    # Launches that were chosen, that ncu counted, and that were found in the first run's trace.
    chosen: int
    counted: int
    joined: int
    # What the chosen work has of the kernels' device time, and of their time above the roof, in
    # all profiled steps.
    time_fraction: float
    gain_fraction: float
    # The whole second run, from its start to the report; and the most that counting was given.
    seconds: float
    limit_s: float
