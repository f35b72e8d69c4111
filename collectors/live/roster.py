"""Every live collector. A new one is a module that makes a `LiveCollector`, and a row here.

Plug-ins add rows too.
"""

from typing import Final

from gpuprof.collectors.live import out_of_memory
from gpuprof.collectors.live.collector import CollectorRow
from gpuprof.collectors.live.nvml import sampler
from gpuprof.collectors.plugins import PluginGroup

ROSTER: Final[tuple[CollectorRow, ...]] = (
    CollectorRow(
        name="NVML",
        subject="GPU state",
        needs_gpu=True,
        fills={"samples": sampler.COLUMNS},
        find=sampler.find_nvml,
        make=sampler.make_sampler,
    ),
    CollectorRow(
        name="Out-of-memory observer",
        subject="GPU memory",
        needs_gpu=True,
        fills={"out_of_memory": out_of_memory.COLUMNS},
        find=out_of_memory.find_observer,
        make=out_of_memory.make_observer,
    ),
)
COLLECTORS: Final = PluginGroup(
    name="gpuprof.collectors",
    adds="live collector",
    kinds=(CollectorRow,),
    claims=lambda row: (row.name,),
    ours=lambda: [row.name for row in ROSTER],
)


def roster() -> tuple[CollectorRow, ...]:
    """Ours, then those of plug-ins."""
    return (*ROSTER, *(plugin.value for plugin in COLLECTORS.load()))
