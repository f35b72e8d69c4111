"""What limits the CPU: its frequency governor, and the quota of this process's control group."""

from pathlib import Path, PurePosixPath

_GOVERNORS = "sys/devices/system/cpu"
_GROUP = "sys/fs/cgroup"


def cpu_governor(root: Path = Path("/")) -> str | None:
    """The governor of all CPUs, several joined by commas; None where the system has none."""
    found = set()
    for file in sorted((root / _GOVERNORS).glob("cpu[0-9]*/cpufreq/scaling_governor")):
        text = _read(file)
        if text:
            found.add(text)
    return ", ".join(sorted(found)) or None


def cpu_quota_cores(root: Path = Path("/")) -> float | None:
    """Cores that the control group may use together; None where there is no limit.

    Version 2 has "max 100000" or "200000 100000" in one file, version 1 two files. In a container
    its own group is the root; elsewhere /proc/self/cgroup names it. The groups that hold it limit
    it, too.
    """
    own = PurePosixPath(_own_group(root))
    quotas = []
    for group in (own, *own.parents):
        quota, _, period = (_read(root / _GROUP / group / "cpu.max") or "").partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period):
            quotas.append(int(quota) / int(period))
    if quotas:
        return min(quotas)
    folder = root / _GROUP / "cpu"
    first, second = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if first and second and first.isdecimal() and second.isdecimal() and int(second):
        return int(first) / int(second)
    return None


def _own_group(root: Path) -> str:
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        if line.startswith("0::"):
            return line.removeprefix("0::").lstrip("/")
    return ""


def _read(file: Path) -> str | None:
    try:
        return file.read_text().strip()
    except OSError:
        return None
