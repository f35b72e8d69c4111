"""The health of a GPU in words."""

from gpuprof.collectors.device_health import DeviceHealth
from gpuprof.reports.blocks import Fact


def health_facts(health: DeviceHealth) -> tuple[Fact, ...]:
    """What the driver told, one fact for each thing; what it did not tell is left out."""
    found = (
        ("Power limit", power_text(health)),
        ("Memory errors", memory_text(health)),
        ("PCIe link, at most", pcie_text(health)),
        ("NVLink", nvlink_text(health)),
        ("Processes", processes_text(health)),
        ("CPUs", cpus_text(health)),
        ("Xid messages", xid_text(health)),
    )
    return tuple(Fact(label, text) for label, text in found if text)


def power_text(health: DeviceHealth) -> str:
    """ "500 W, 700 W by default"; "" where unknown."""
    limit, default = health.power_limit_milliwatts, health.default_power_limit_milliwatts
    if limit is None:
        return ""
    if default is None or limit == default:
        return f"{limit / 1e3:.0f} W" + (", the default" if limit == default else "")
    return f"{limit / 1e3:.0f} W, {default / 1e3:.0f} W by default"


def memory_text(health: DeviceHealth) -> str:
    """Uncorrected errors, and rows that are or could not be replaced; "" where unknown."""
    parts = []
    if health.uncorrected_memory_errors is not None:
        parts.append(f"{health.uncorrected_memory_errors} uncorrected")
    if health.remapped_rows is not None:
        parts.append(f"{health.remapped_rows} rows remapped")
    if health.remapping_pending:
        parts.append("a remapping waits for a reset")
    if health.remapping_failed:
        parts.append("a remapping failed")
    return ", ".join(parts)


def pcie_text(health: DeviceHealth) -> str:
    """What the link could do in this system; "" where unknown."""
    generation, width = health.maximum_pcie_generation, health.maximum_pcie_width
    return "" if generation is None or width is None else f"generation {generation} x{width}"


def nvlink_text(health: DeviceHealth) -> str:
    """How many links are up; "" where there are none, or unknown."""
    if health.nvlinks_active is None or health.nvlinks_inactive is None:
        return ""
    return f"{health.nvlinks_active} up, {health.nvlinks_inactive} down"


def processes_text(health: DeviceHealth) -> str:
    """Who holds a context, and who computed; "" where unknown."""
    parts = []
    if health.compute_processes is not None:
        parts.append(f"{health.compute_processes} with a context")
    if health.active_processes is not None:
        parts.append(f"{health.active_processes} with kernels in the last seconds")
    return ", ".join(parts)


def cpus_text(health: DeviceHealth) -> str:
    """Which CPUs are near, and how many of them may be used; "" where unknown."""
    if health.local_cpus is None:
        return ""
    node = "" if health.numa_node is None else f"NUMA node {health.numa_node}, "
    allowed = ""
    if health.allowed_cpus is not None and health.allowed_local_cpus is not None:
        allowed = (
            f"; this process may use {health.allowed_cpus}, {health.allowed_local_cpus} of them "
            "local"
        )
    return f"{node}{health.local_cpus}{allowed}"


def xid_text(health: DeviceHealth) -> str:
    """The numbers of the messages since the system started; "" where the log cannot be read."""
    if health.xids is None:
        return ""
    return ", ".join(str(number) for number in health.xids) or "none since the system started"
