"""Collectives of one message over all ranks of torch.distributed's default group.

The message is the whole buffer, as nccl-tests counts it: all that a rank gathers, or what it has
before it scatters. Every rank can draw every other rank's input, so each checks its own output.
"""

from typing import ClassVar

import torch
import torch.distributed as dist

from gpuprof.reference_kernels.suite import (
    TORCH_DTYPES,
    DeviceType,
    KnownWork,
    Problem,
    UnsupportedError,
)
from gpuprof.roofline.bus_bandwidth import COLLECTIVES, CollectiveName, bus_factor
from gpuprof.roofline.claims.byte_sizes import parse_bytes
from gpuprof.roofline.cost_models.cost import Flops

_ROOT = 0
# An input is a block of this many random elements, repeated: drawing more takes longer than
# sending them, and nothing on the way depends on the values.
_BLOCK = 2**22


class CollectiveProblem(Problem):
    """One collective on this rank.

    `input` has the whole message, or for an all-gather this rank's share of it; `output_shape` is
    that of the result: a share for a reduce-scatter.
    """

    family = "collectives"
    needs_group = True
    default_sizes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": (
            *(f"all-reduce:{size}" for size in ("16KiB", "128KiB", "1MiB", "16MiB", "256MiB")),
            *(f"{name}:256MiB" for name in COLLECTIVES if name != "all-reduce"),
        ),
        "cpu": tuple(f"{name}:1MiB" for name in COLLECTIVES),
    }
    default_dtypes: ClassVar[dict[DeviceType, tuple[str, ...]]] = {
        "cuda": ("bf16",),
        "cpu": ("fp32",),
    }
    size_form = f"COLLECTIVE:BYTES, such as all-reduce:1MiB; {', '.join(COLLECTIVES)}"

    def __init__(self, size: str, dtype: str, device: torch.device, *, seed: int = 0) -> None:
        super().__init__(size, dtype, device, seed=seed)
        name, _, message = size.partition(":")
        if name not in COLLECTIVES:
            raise ValueError(f"{size!r} is no size of {self.family}: give {self.size_form}")
        self.collective: CollectiveName = name
        self.torch_dtype = TORCH_DTYPES[dtype]
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        # Whole shares, each of whole 16-byte words.
        shares_of = self.ranks * (16 // self.torch_dtype.itemsize)
        wanted = parse_bytes(message) // self.torch_dtype.itemsize
        self.elements = -(-wanted // shares_of) * shares_of
        self.message_bytes = self.elements * self.torch_dtype.itemsize
        self.share = self.elements // self.ranks
        self._seed = seed
        self.input = self._input_of(self.rank)

    def need(self, *collectives: CollectiveName) -> None:
        """Raise `UnsupportedError` where this is none of `collectives`."""
        if self.collective not in collectives:
            raise UnsupportedError(f"it does {' and '.join(collectives)} only")

    def output(self) -> torch.Tensor:
        """An empty tensor for this rank's result."""
        size = self.share if self.collective == "reduce-scatter" else self.elements
        return torch.empty(size, dtype=self.torch_dtype, device=self.device)

    def work(self) -> KnownWork:
        """The additions that all ranks share, and this rank's own buffers once each."""
        itemsize = self.torch_dtype.itemsize
        read, written = self.input.numel() * itemsize, self.output().numel() * itemsize
        adds = 0
        if self.collective in ("all-reduce", "reduce-scatter"):
            adds = (self.ranks - 1) * self.share
        elif self.collective == "broadcast":
            # The root has the message already; the others only write it.
            read, written = (read, 0) if self.rank == _ROOT else (0, written)
        return KnownWork(
            (Flops("vector", self.dtype, adds),) if adds else (),
            read,
            written,
            round(self.message_bytes * bus_factor(self.collective, self.ranks)),
        )

    def reference(self) -> tuple[torch.Tensor, ...]:
        """What this rank must end up with, from the inputs of all ranks."""
        if self.collective == "broadcast":
            return (self._input_of(_ROOT).double(),)
        mine = slice(self.rank * self.share, (self.rank + 1) * self.share)
        if self.collective in ("all-gather", "all-to-all"):
            parts = [self._input_of(rank) for rank in range(self.ranks)]
            if self.collective == "all-to-all":
                parts = [part[mine] for part in parts]
            return (torch.cat(parts).double(),)
        total = torch.zeros(self.elements, dtype=torch.float64, device=self.device)
        for rank in range(self.ranks):
            total += self._input_of(rank)
        return (total[mine] if self.collective == "reduce-scatter" else total,)

    @property
    def tolerance(self) -> float:
        """Copies are exact; a sum rounds once for each rank but the first."""
        if self.collective not in ("all-reduce", "reduce-scatter"):
            return 0.0
        return (self.ranks - 1) * torch.finfo(self.torch_dtype).eps

    def _input_of(self, rank: int) -> torch.Tensor:
        """The input of `rank`, the same on every rank."""
        self.generator.manual_seed(self._seed * self.ranks + rank)
        size = self.share if self.collective == "all-gather" else self.elements
        block = self.random(min(size, _BLOCK), dtype=self.torch_dtype)
        return block.repeat(-(-size // block.numel()))[:size].contiguous()
