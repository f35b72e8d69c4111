"""What `gpuprof run --wait` is asked to wait for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class OnDemandPlan:
    """When captures begin, and how many are kept."""

    # With which `gpuprof snap` asks.
    signal: int
    # Captures kept on disk: the newest.
    most_captures: int
    # Numbers of the steps with which a capture begins; 1 is the program's first.
    at_steps: tuple[int, ...] = ()
    # A step that takes over so many times the P95 of the last ones begins a capture; None: none.
    slower_than_p95: float | None = None

    @property
    def follows_steps(self) -> bool:
        """Whether steps have to be seen while waiting."""
        return bool(self.at_steps) or self.slower_than_p95 is not None
