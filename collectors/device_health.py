"""What a GPU's driver says of its state beside clocks: limits, errors, links, and who else uses it.

Structs are part of `rank=R/process.json`. Unknown is None.
"""

import msgspec


class DeviceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, read once at the end of a run."""

    # CUDA's number.
    index: int
    # "0000:3b:00.0", as Linux names it.
    pci_address: str | None = None
    power_limit_milliwatts: int | None = None
    default_power_limit_milliwatts: int | None = None
    # Since the driver was loaded.
    uncorrected_memory_errors: int | None = None
    # Rows of memory that are replaced for uncorrectable errors; a replacement that waits for a
    # reset of the GPU; one that was not possible.
    remapped_rows: int | None = None
    remapping_pending: bool | None = None
    remapping_failed: bool | None = None
    # Of the device in this system. What is in use is among the samples: an idle link is slow.
    maximum_pcie_generation: int | None = None
    maximum_pcie_width: int | None = None
    nvlinks_active: int | None = None
    nvlinks_inactive: int | None = None
    # Processes that hold a context, and those whose kernels ran in the last seconds.
    compute_processes: int | None = None
    active_processes: int | None = None
    mig: bool | None = None
    # The memory node that it is attached to, and that node's CPUs, "0-31,64-95".
    numa_node: int | None = None
    local_cpus: str | None = None
    # CPUs that this process may use, and how many of these are local.
    allowed_cpus: int | None = None
    allowed_local_cpus: int | None = None
    # Numbers of the driver's error messages about it in the kernel's log, oldest first; None where
    # the log cannot be read.
    xids: tuple[int, ...] | None = None

    @property
    def other_processes(self) -> int:
        """Others than this one whose kernels ran in the last seconds; 0 where that is unknown."""
        return max(0, (self.active_processes or 0) - 1)
