"""How long the stepping thread was within `next` of torch's data loaders."""

import functools
import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from gpuprof.collectors.live.replaced import replace
from gpuprof.collectors.live.unix_clock import monotonic_ns

_MODULE: Final = "torch.utils.data.dataloader"


class LoaderTime:
    """Nanoseconds of the thread that makes this in `next` of a DataLoader's iterator.

    Without workers that is the time of loading itself, with workers the wait for them. It costs
    well below a microsecond a batch; `LoaderWaits` tells more of fewer batches.
    """

    def __init__(self) -> None:
        self.nanoseconds = 0
        self._started = False
        self._thread = get_ident()
        self._inside = False
        self._undo: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to count."""
        self._started = True
        iterators: Any = getattr(sys.modules.get(_MODULE), "_BaseDataLoaderIter", None)
        if iterators is None:
            return
        original = iterators.__next__

        @functools.wraps(original)
        def next_batch(iterator: Any) -> Any:
            # A dataset may itself ask a loader: the outer batch holds the inner one.
            if self._inside or get_ident() != self._thread:
                return original(iterator)
            self._inside = True
            begun_ns = monotonic_ns()
            try:
                return original(iterator)
            finally:
                self.nanoseconds += monotonic_ns() - begun_ns
                self._inside = False

        self._undo = replace(iterators, __next__=next_batch)

    def read_ns(self) -> int | None:
        """What was counted so far; None where nobody counts: loaders were imported meanwhile."""
        counting = self._undo is not None or _MODULE not in sys.modules
        return self.nanoseconds if self._started and counting else None

    def stop(self) -> None:
        """Count no longer."""
        if self._undo is not None:
            self._undo()
            self._undo = None
