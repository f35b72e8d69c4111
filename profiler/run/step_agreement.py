"""The ranks of a job agree on the step from which they time.

How long a device takes to settle differs between ranks. Ranks that profiled different steps would
hold each other up: one that stops its profiler takes some tenths of a second, in which the others
wait in a step that they still profile.

They meet in the store with which torch.distributed has begun, a table of keys that every rank
reaches over the network: no collective is added to the program's.
"""

import itertools
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

# Ranks come to one boundary nearly at once. One that never comes, or has no GPU, holds the others
# up for so long, once.
PATIENCE_S: Final = 10.0
_numbers = itertools.count()


def is_meeting(boundary: int) -> bool:
    """Whether ranks meet at the boundary of that number: more and more rarely, as they go."""
    return boundary % (1 << max(0, boundary.bit_length() - 3)) == 0


class StepAgreement:
    """One search for a step from which all ranks time; every rank makes as many of them."""

    def __init__(
        self,
        world_size: int,
        attempt: int = 0,
        *,
        store: Callable[[int], Any] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`attempt` of an elastic job, whose store may stay. `store`: as `_default_store`."""
        self._world_size = world_size
        self._prefix = f"gpuprof/{attempt}/{next(_numbers)}"
        self._store = store or _default_store
        self._patience = timedelta(seconds=patience_s)
        self._given_up = False

    def all_ready(self, boundary: int, ready: bool) -> bool:
        """Whether all ranks are ready at `boundary`. Waits for them.

        Where they cannot be asked, or one does not come, whether this one is, then and later: with
        `is_meeting` ranks that need about as long will mostly still agree.
        """
        if self._given_up:
            return ready
        try:
            return self._meet(self._store(self._world_size), f"{self._prefix}/{boundary}", ready)
        except Exception:
            self._given_up = True
            return ready

    def _meet(self, store: Any, key: str, ready: bool) -> bool:
        store.add(f"{key}/ready", int(ready))
        if store.add(f"{key}/here", 1) == self._world_size:
            # The last one: all have said before whether they are ready.
            store.set(f"{key}/all", str(store.add(f"{key}/ready", 0)))
        else:
            store.wait([f"{key}/all"], self._patience)
        return int(store.get(f"{key}/all")) == self._world_size


def _default_store(world_size: int) -> Any:
    """The store of the default process group. Raises `RuntimeError` where it has other ranks."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not c10d.is_initialized() or c10d.get_world_size() != world_size:
        raise RuntimeError("the ranks have no process group")
    return c10d._get_default_store()
