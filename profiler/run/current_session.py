"""The session that watches this process, for those who ask before torch is imported too."""

from collections.abc import Callable
from typing import Protocol


class StepMarker(Protocol):
    """What the session can be told."""

    def step(self, tokens: int | None) -> None:
        """One step ends here."""


current: StepMarker | None = None
# Begins the session of a program that marks steps without torch; None where none is waiting.
begin: Callable[[], None] | None = None
