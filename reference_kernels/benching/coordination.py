"""What the ranks of one bench settle among themselves; a process alone settles it at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist

from gpuprof.collectors.live import cuda


class Coordination(Protocol):
    """The ranks that solve a problem together."""

    @property
    def ranks(self) -> int:
        """How many there are."""

    def agree(self, value: int) -> int:
        """What rank 0 says."""

    def largest(self, values: Sequence[float]) -> list[float]:
        """For each value the largest of all ranks; NaN where one has NaN."""

    def line_up(self, head_start_ns: int) -> None:
        """Hold the device for `head_start_ns`, then let none go on before all ranks have come here.

        Meanwhile the host puts the call on the stream, which then begins without waiting for it.
        """


class Alone:
    """One process."""

    ranks = 1

    def agree(self, value: int) -> int:
        """See `Coordination`."""
        return value

    def largest(self, values: Sequence[float]) -> list[float]:
        """See `Coordination`."""
        return list(values)

    def line_up(self, head_start_ns: int) -> None:
        """See `Coordination`. On a CPU there is no head start."""
        if head_start_ns:
            cuda.hold(head_start_ns)


@dataclass(frozen=True)
class Group:
    """All ranks of torch.distributed's default group, which must be initialised."""

    device: torch.device

    @property
    def ranks(self) -> int:
        """See `Coordination`."""
        return dist.get_world_size()

    def agree(self, value: int) -> int:
        """See `Coordination`."""
        told = torch.tensor([value], device=self.device)
        dist.broadcast(told, src=0)
        return int(told.item())

    def largest(self, values: Sequence[float]) -> list[float]:
        """See `Coordination`."""
        # A maximum over ranks may drop NaN; infinity it keeps.
        known = [float("inf") if value != value else value for value in values]
        told = torch.tensor(known, dtype=torch.float64, device=self.device)
        dist.all_reduce(told, op=dist.ReduceOp.MAX)
        found: list[float] = told.tolist()
        return [float("nan") if value == float("inf") else value for value in found]

    def line_up(self, head_start_ns: int) -> None:
        """A collective of one element: NCCL's waits on the device, gloo's on the host."""
        if self.device.type == "cuda":
            cuda.hold(head_start_ns)
        dist.all_reduce(torch.zeros(1, device=self.device))
