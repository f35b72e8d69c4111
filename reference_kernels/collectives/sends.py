"""What the collectives written out over point-to-point sends have in common."""

from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Send:
    """One message of one step: what this rank sent, and where to."""

    step: int
    destination: int
    # Which share of the buffer it was; None where it was all of it.
    chunk: int | None
    bytes: int


def exchange(
    out: torch.Tensor | None,
    destination: int,
    into: torch.Tensor | None,
    origin: int,
) -> None:
    """Send `out` to `destination` while `into` arrives from `origin`; None for neither."""
    operations = []
    if out is not None:
        operations.append(dist.P2POp(dist.isend, out, destination))
    if into is not None:
        operations.append(dist.P2POp(dist.irecv, into, origin))
    # One group of NCCL: a send alone would wait for its receiver to be at its own send.
    for request in dist.batch_isend_irecv(operations):
        request.wait()
