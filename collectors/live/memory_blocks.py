"""What memory holds while a profile runs: gradients when they are used, everything at the end."""

from typing import Any, Final

from torch.optim.optimizer import register_optimizer_step_pre_hook

from gpuprof.collectors.live import cuda
from gpuprof.collectors.live.profile_recorder import Rows
from gpuprof.collectors.live.script_errors import hiding_our_errors
from gpuprof.collectors.live.tensor_owners import HeldStorage, gradient_storages, held_storages
from gpuprof.collectors.live.unix_clock import unix_ns
from gpuprof.collectors.memory_segments import Stacks, block_rows

# A first look may hold very many steps of a small model; a profile keeps those of the first.
_MOST_GRADIENTS: Final = 100_000


class MemoryBlocks:
    """A `ProfileRecorder` of what memory holds.

    A step of an optimizer may end with its gradients given back, so they are noted before each.
    """

    subject = "what memory held"

    def __init__(self) -> None:
        self._gradients: list[tuple[int, HeldStorage]] = []
        self._hook: Any = None

    def start(self) -> None:
        """See `ProfileRecorder`."""
        self._gradients = []
        self._hook = register_optimizer_step_pre_hook(self._before_a_step)

    def stop(self) -> Rows:
        """See `ProfileRecorder`."""
        self._hook.remove()
        gradients, self._gradients = self._gradients, []
        rows = [_row(held, "optimizer step", time_ns) for time_ns, held in gradients]
        return {"memory_blocks": [*rows, *blocks_now("profile end")]}

    def _before_a_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if len(self._gradients) >= _MOST_GRADIENTS:
            return
        now_ns = unix_ns()
        with hiding_our_errors():
            self._gradients += [(now_ns, held) for held in gradient_storages(optimizer)]


def blocks_now(moment: str) -> list[dict[str, Any]]:
    """All memory that is allocated now, with what holds it, as rows of the table memory_blocks.

    On a GPU the blocks of torch's allocator, free ones too; in main memory, and where another
    allocator is used, the storages of live tensors.
    """
    now_ns = unix_ns()
    held = held_storages()
    blocks = cuda.allocator_segments() if cuda.in_use() else []
    rows = list(block_rows(blocks, moment=moment, time_ns=now_ns, stacks=Stacks()))
    owners = {(each.device, each.address): each for each in held}
    for row in rows:
        owner = owners.pop((row["device"], row["address"]), None)
        if owner is not None:
            row |= {"category": owner.category, "name": owner.name}
    listed = {row["device"] for row in rows}
    # What is not the beginning of a block of a device whose blocks are known lies within one.
    return rows + [_row(each, moment, now_ns) for each in held if each.device not in listed]


def _row(held: HeldStorage, moment: str, time_ns: int) -> dict[str, Any]:
    return {
        "time_ns": time_ns,
        "moment": moment,
        "device": held.device,
        "address": held.address,
        "bytes": held.bytes,
        "state": "allocated",
        "category": held.category,
        "name": held.name,
    }
