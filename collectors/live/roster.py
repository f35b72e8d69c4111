"""Every live collector. A new one is a module that makes a `LiveCollector`, and a row here."""

from typing import Final

from gpuprof.collectors.live import out_of_memory
from gpuprof.collectors.live.collector import CollectorRow
from gpuprof.collectors.live.nvml import sampler

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
