"""What Linux counts of one thread or process: time on a core, time waiting for one, bytes read."""

from dataclasses import dataclass

_SELF = "thread-self"


@dataclass(frozen=True)
class ProcessCounts:
    """Counts since the thread or process started; None where the system keeps none."""

    cpu_ns: int | None = None
    run_delay_ns: int | None = None
    # From files, pipes and sockets, and what of that came from a storage device.
    read_bytes: int | None = None
    storage_bytes: int | None = None

    def since(self, earlier: "ProcessCounts") -> "ProcessCounts":
        """What was added since `earlier`."""
        return ProcessCounts(
            _difference(self.cpu_ns, earlier.cpu_ns),
            _difference(self.run_delay_ns, earlier.run_delay_ns),
            _difference(self.read_bytes, earlier.read_bytes),
            _difference(self.storage_bytes, earlier.storage_bytes),
        )

    def plus(self, other: "ProcessCounts") -> "ProcessCounts":
        """Both together; unknown where one of them is."""
        return ProcessCounts(
            _sum(self.cpu_ns, other.cpu_ns),
            _sum(self.run_delay_ns, other.run_delay_ns),
            _sum(self.read_bytes, other.read_bytes),
            _sum(self.storage_bytes, other.storage_bytes),
        )


def counts_of(process: int | None = None, *, root: str = "/proc") -> ProcessCounts:
    """The counts of a process (its first thread's times), or of the calling thread.

    A reading takes about 20 us. What cannot be read is None.
    """
    folder = f"{root}/{_SELF if process is None else process}"
    # run time, run delay, time slices: Documentation/scheduler/sched-stats.rst
    times = _read(f"{folder}/schedstat").split()
    # Documentation/filesystems/proc.rst, /proc/<pid>/io
    lines = (line.partition(b":") for line in _read(f"{folder}/io").splitlines())
    read = {name: int(value) for name, _, value in lines if value.strip().isdigit()}
    known = len(times) >= 2 and all(part.isdigit() for part in times)
    return ProcessCounts(
        int(times[0]) if known else None,
        int(times[1]) if known else None,
        read.get(b"rchar"),
        read.get(b"read_bytes"),
    )


def _read(file: str) -> bytes:
    try:
        with open(file, "rb") as counts:
            return counts.read()
    except OSError:
        return b""


def _difference(later: int | None, earlier: int | None) -> int | None:
    return None if later is None or earlier is None else later - earlier


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
