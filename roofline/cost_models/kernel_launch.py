"""One launch of a kernel that has a cost model of its own, for no operator describes its work."""

from dataclasses import dataclass

from gpuprof.roofline.cost_models.call import OpCall


@dataclass(frozen=True)
class KernelLaunch:
    """What a trace tells of a launch. None where it does not."""

    # As the trace prints it: C++ names with their template arguments.
    name: str
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    # A thread's, and bytes of a block.
    registers: int | None = None
    shared_memory: int | None = None
    # The operator that launched it, with its arguments.
    call: OpCall | None = None
