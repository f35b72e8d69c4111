"""What is wrong with plug-ins: one sentence each, said once and kept for reports."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from gpuprof.collectors.plugins.origin import PluginOrigin

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PluginProblem:
    """One thing that a plug-in does wrong."""

    origin: PluginOrigin
    # What is wrong, without who does it.
    finding: str

    @property
    def sentence(self) -> str:
        """Who does what, for a line of its own."""
        who = f"{self.origin.distribution} ({self.origin.group}: {self.origin.entry_point})"
        return f"plug-in {who}: {self.finding}"


def problem_with(origin: PluginOrigin, finding: str) -> None:
    """Note that the plug-in `origin` does something wrong, and say it where it was not said yet."""
    problem = PluginProblem(origin, finding)
    if problem not in _problems:
        _problems.append(problem)
        _tell(problem.sentence)


def noted_problems() -> tuple[PluginProblem, ...]:
    """All that was noted in this process."""
    return tuple(_problems)


def tell_problems_to(listener: Callable[[str], object]) -> None:
    """Give each sentence to `listener`; before that they go to the logger as warnings."""
    global _tell
    _tell = listener


_problems: list[PluginProblem] = []
_tell: Callable[[str], object] = _log.warning
