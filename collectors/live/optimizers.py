"""The optimizers of this process."""

from collections.abc import Sequence
from typing import Any

from torch.optim.optimizer import Optimizer

from gpuprof.collectors.live.live_objects import live_objects


def live_optimizers(among: Sequence[Any] | None = None) -> list[Optimizer]:
    """Every optimizer of this process that is alive, `among` as in `live_objects`."""
    return live_objects(Optimizer, among=among)
