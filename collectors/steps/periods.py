"""Which of several objects that mark steps does so least often.

The optimizers of one program may step at unequal periods: a GAN's critic five times for each step
of its generator. What repeats is the longest period.
"""

from typing import Final

# A period of this many marks of the leader is no skipped step (loss scaling skips one at times).
_CLEARLY_LONGER: Final = 3


class Periods:
    """Compares other objects that mark with the leading one, mark by mark."""

    def __init__(self) -> None:
        self._leader_marks = 0
        # Of each other object: the leader's marks when it last marked.
        self._last: dict[int, int] = {}
        # How many periods in a row were longer than the leader's; 0 once one was not.
        self._longer: dict[int, int] = {}

    def leader_marked(self) -> None:
        """The leading object has marked."""
        self._leader_marks += 1

    def marked(self, key: int) -> bool:
        """Another object has marked; whether its period is known to be the longer one."""
        last = self._last.get(key)
        self._last[key] = self._leader_marks
        if last is None:
            return False
        leader_marks = self._leader_marks - last
        self._longer[key] = self._longer.get(key, 0) + 1 if leader_marks > 1 else 0
        return leader_marks >= _CLEARLY_LONGER or self._longer[key] > 1

    @property
    def decided(self) -> bool:
        """Whether every object that has marked has shown that its period is not longer."""
        return all(self._longer.get(key) == 0 for key in self._last)
