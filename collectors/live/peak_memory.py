"""The main memory of this process."""

import resource


def peak_resident_bytes() -> int:
    """The most main memory that this process held."""
    # Linux counts ru_maxrss in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
