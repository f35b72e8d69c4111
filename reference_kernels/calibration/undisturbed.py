"""Repeats of a call on a CPU, without those in which other programs had one of its cores.

Threads of one product wait for each other, so one that loses its core for a few milliseconds makes
the call ten or a hundred times as long. Linux counts how long threads waited for a core: a repeat
in which none did is a true one, however busy the machine is otherwise.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuprof.collectors.live.run_delay import process_run_delay_ns
from gpuprof.reference_kernels.calibration.probe import Call

# Long enough for the clock, and short enough to fit between other programs.
_REPEAT_S = 0.002
# Less than a clock can tell.
_CLOCK_S = 1e-7
# All threads together may wait for so much of a repeat, which lengthens it by as much at most.
_TOLERATED_DELAY = 0.01
# The fastest of so many repeats, and of so long, is one that others hardly find a faster one to.
_FEWEST = 5
_SHORTEST_S = 0.03
# A rate counts where the fastest repeats agree so well: two calibrations then do, too.
_AGREEING = 3
_AGREEMENT = 0.03
# So many are made at least before that is given up.
_PATIENT = 8


@dataclass(frozen=True)
class Repeats:
    """`seconds` a call in each repeat that counts; others had a core in `disturbed` more."""

    seconds: tuple[float, ...]
    disturbed: int

    @property
    def agree(self) -> bool:
        """Whether there are enough that the fastest are close to each other."""
        return _agree(self.seconds)


def undisturbed_repeats(
    call: Call,
    patience_s: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
    run_delay_ns: Callable[[], int | None] = process_run_delay_ns,
) -> Repeats:
    """Repeats of `call` for 0.03 s and until the fastest agree, or for `patience_s` seconds.

    Where the system does not count waiting, every repeat counts, and only their agreement shows
    that the machine was quiet.
    """
    call()
    began = clock()
    call()
    shortest = clock() - began
    seconds: list[float] = []
    disturbed = 0
    undisturbed_s = 0.0
    while undisturbed_s < _SHORTEST_S or not _agree(seconds):
        if len(seconds) + disturbed >= _PATIENT and clock() - began > patience_s:
            break
        calls = max(1, round(_REPEAT_S / max(shortest, _CLOCK_S)))
        waited_ns, start = run_delay_ns(), clock()
        for _ in range(calls):
            call()
        passed = clock() - start
        if _was_disturbed(waited_ns, run_delay_ns(), passed):
            disturbed += 1
        else:
            seconds.append(passed / calls)
            undisturbed_s += passed
        shortest = min(shortest, passed / calls)
    return Repeats(tuple(seconds), disturbed)


def _agree(seconds: Sequence[float]) -> bool:
    fastest = sorted(seconds)[:_AGREEING]
    return len(seconds) >= _FEWEST and fastest[-1] <= fastest[0] * (1 + _AGREEMENT)


def _was_disturbed(before_ns: int | None, after_ns: int | None, passed_s: float) -> bool:
    if before_ns is None or after_ns is None:
        return False
    # A thread that ended takes its count with it, which does not make others shorter.
    return after_ns - before_ns > _TOLERATED_DELAY * passed_s * 1e9
