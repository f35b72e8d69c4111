"""Device work that ends after the profiler stopped: its time is damaged, or it is another trace's.

Kineto writes the span that it recorded as an event of category Trace. In 39 traces of torch 1.8 to
2.11, of NVIDIA and AMD devices, all device work ends before it does; calls of the host may not.
"""

from collections.abc import Mapping
from typing import Final

import polars as pl

# Old traces have whole microseconds, each rounded by itself.
_RESOLUTION_NS: Final = 1_000


def beyond_recording(raw: Mapping[str, pl.DataFrame]) -> tuple[str, ...]:
    """A sentence with number and size where kernels of `raw` end after the last recording."""
    stopped_ns = raw["recordings"]["end_ns"].max()
    if not isinstance(stopped_ns, int):
        return ()
    late_ns = (raw["kernels"]["end_ns"] - stopped_ns).to_numpy()
    late_ns = late_ns[late_ns > _RESOLUTION_NS]
    if not len(late_ns):
        return ()
    ends = "1 piece of device work ends"
    if len(late_ns) > 1:
        ends = f"{len(late_ns)} pieces of device work end"
    return (
        f"{ends} after the recording stopped, by up to {late_ns.max() / 1e3:.0f} us: times are "
        "damaged, or it is work of another recording.",
    )
