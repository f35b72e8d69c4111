"""Memory of all ranks that every rank's kernels read and write, through torch's symmetric memory.

Multicast, which lets the switch add, is not used: these kernels address each rank by itself.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from gpuprof.reference_kernels.collectives.problem import CollectiveProblem
from gpuprof.reference_kernels.suite import UnsupportedError


@dataclass(frozen=True)
class SharedMessage:
    """This rank's part of a symmetric buffer that holds messages on each rank."""

    buffer: torch.Tensor
    # Address on this device of a table of all ranks' allocations, 64-bit pointers, and how many
    # bytes behind each the buffer begins.
    buffer_table: int
    offset_bytes: int
    # Address of a table of all ranks' signal pads.
    signal_table: int
    # 32-bit words of a rank's signal pad.
    signals: int
    group_name: str


def share(problem: CollectiveProblem, *, messages: int = 1) -> SharedMessage:
    """A symmetric buffer for so many of the problem's messages; all ranks call this together.

    Raises `UnsupportedError` where the ranks cannot map each other's memory.
    """
    # Imported here: torch builds without it exist, and only these versions need it.
    try:
        import torch.distributed._symmetric_memory as symmetric_memory
    except ImportError as error:
        raise UnsupportedError(f"this torch has no symmetric memory: {error}") from error
    module: Any = symmetric_memory
    group = dist.group.WORLD
    assert group is not None
    try:
        buffer = module.empty(
            messages * problem.elements, dtype=problem.torch_dtype, device=problem.device
        )
        handle = module.rendezvous(buffer, group.group_name)
    except RuntimeError as error:
        raise UnsupportedError(f"the ranks' memory cannot be shared: {error}") from error
    return SharedMessage(
        buffer,
        handle.buffer_ptrs_dev,
        buffer.data_ptr() - handle.buffer_ptrs[problem.rank],
        handle.signal_pad_ptrs_dev,
        handle.signal_pad_size // 4,
        group.group_name,
    )
