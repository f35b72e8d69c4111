"""The health of the GPUs that a process may use, as NVML and the system tell it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gpuprof.collectors.device_health import DeviceHealth
from gpuprof.collectors.live.kernel_log import XidMessage, xid_messages
from gpuprof.collectors.live.nvml.library import answer, ask, text, visible_handles
from gpuprof.collectors.live.nvml.nvlinks import link_states
from gpuprof.collectors.live.nvml.readings import in_mig_mode, plausible

_COUNTS: Final = range(1 << 31)


def device_health(
    system: Path = Path("/"),
    log: Callable[[], tuple[XidMessage, ...] | None] = xid_messages,
) -> tuple[DeviceHealth, ...]:
    """One entry for each visible GPU, in CUDA's order; none where NVML does not answer."""
    messages = log()
    return ask(lambda library: _all(library, system, messages)) or ()


def _all(
    library: Any, system: Path, messages: tuple[XidMessage, ...] | None
) -> tuple[DeviceHealth, ...]:
    return tuple(
        _one(library, handle, index, system, messages)
        for index, handle in visible_handles(library).items()
        if handle is not None
    )


def _one(
    library: Any,
    handle: Any,
    index: int,
    system: Path,
    messages: tuple[XidMessage, ...] | None,
) -> DeviceHealth:
    lib = library
    address = answer(lambda: _address(text(lib.nvmlDeviceGetPciInfo(handle).busId)))
    rows = answer(lambda: _four(lib.nvmlDeviceGetRemappedRows(handle))) or (None,) * 4
    links = link_states(lib, handle)
    numa_node, local_cpus = _place(system, address)
    allowed = answer(lambda: frozenset(os.sched_getaffinity(0)))
    local = None if local_cpus is None else cpu_numbers(local_cpus)
    return DeviceHealth(
        index=index,
        pci_address=address,
        power_limit_milliwatts=_power(lambda: lib.nvmlDeviceGetEnforcedPowerLimit(handle)),
        default_power_limit_milliwatts=_power(
            lambda: lib.nvmlDeviceGetPowerManagementDefaultLimit(handle)
        ),
        uncorrected_memory_errors=_count(
            lambda: lib.nvmlDeviceGetTotalEccErrors(
                handle, lib.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, lib.NVML_VOLATILE_ECC
            )
        ),
        remapped_rows=_count(lambda: rows[1]),
        remapping_pending=_flag(lambda: rows[2]),
        remapping_failed=_flag(lambda: rows[3]),
        maximum_pcie_generation=_column(
            "pcie_generation", lambda: lib.nvmlDeviceGetMaxPcieLinkGeneration(handle)
        ),
        maximum_pcie_width=_column("pcie_width", lambda: lib.nvmlDeviceGetMaxPcieLinkWidth(handle)),
        nvlinks_active=sum(links.values()) if links else None,
        nvlinks_inactive=len(links) - sum(links.values()) if links else None,
        compute_processes=answer(lambda: _length(lib.nvmlDeviceGetComputeRunningProcesses(handle))),
        active_processes=answer(lambda: _active_processes(lib, handle)),
        mig=in_mig_mode(lib, handle),
        numa_node=numa_node,
        local_cpus=local_cpus,
        allowed_cpus=None if allowed is None else len(allowed),
        allowed_local_cpus=None if allowed is None or local is None else len(allowed & local),
        xids=_xids(messages, address),
    )


def cpu_numbers(text: str) -> frozenset[int]:
    """The CPUs of a list as Linux writes it: "0-3,8". Raises `ValueError` for another text."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first:
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _address(bus: str) -> str:
    """NVML's "00000000:3B:00.0" as Linux writes it."""
    domain, _, rest = bus.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _active_processes(library: Any, handle: Any) -> int:
    """Processes of which NVML's last samples, some seconds, saw kernels."""
    samples = library.nvmlDeviceGetProcessUtilization(handle, 0)
    return len({sample.pid for sample in samples if sample.smUtil > 0})


def _place(system: Path, address: str | None) -> tuple[int | None, str | None]:
    if address is None:
        return None, None
    folder = system / "sys/bus/pci/devices" / address
    node = answer(lambda: int((folder / "numa_node").read_text()))
    cpus = answer(lambda: (folder / "local_cpulist").read_text().strip())
    known = answer(lambda: bool(cpus) and bool(cpu_numbers(cpus or "")))
    # -1: the firmware does not say.
    return node if node is not None and node >= 0 else None, cpus if known else None


def _xids(messages: tuple[XidMessage, ...] | None, address: str | None) -> tuple[int, ...] | None:
    if messages is None or address is None:
        return None
    # The log leaves out the function.
    own = address.partition(".")[0]
    return tuple(found.number for found in messages if found.pci_address.startswith(own))


def _power(read: Callable[[], Any]) -> int | None:
    return _column("power_milliwatts", read)


def _column(column: str, read: Callable[[], Any]) -> int | None:
    value = answer(read)
    return round(value) if plausible(value, column) else None


def _count(read: Callable[[], Any]) -> int | None:
    value = answer(read)
    return value if isinstance(value, int) and value in _COUNTS else None


def _four(found: object) -> tuple[Any, ...]:
    """As pynvml answers: corrected, uncorrected, pending, failed. Raises `TypeError` for others."""
    if not isinstance(found, tuple) or len(found) != 4:
        raise TypeError(f"NVML tells of rows {type(found).__name__}")
    return found


def _flag(read: Callable[[], Any]) -> bool | None:
    value = answer(read)
    return bool(value) if value in (0, 1) else None


def _length(found: object) -> int:
    """Of a list. Raises `TypeError` for what is none."""
    if not isinstance(found, list):
        raise TypeError(f"NVML lists {type(found).__name__}")
    return len(found)
