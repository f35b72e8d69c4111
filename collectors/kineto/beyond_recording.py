"""What ends after the profiler stopped recording: its time is damaged, or it is of another trace.

Kineto writes the span that it recorded as an event of category Trace, and leaves out what is not
within (libkineto/src/CuptiActivityProfiler.cpp). In traces of torch 1.8 to 2.11 on NVIDIA and AMD
devices all work ends before that span does.
"""

from collections.abc import Mapping
from typing import Final

import polars as pl

_TABLES: Final = (
    ("kernels", "device work"),
    ("launches", "launches"),
    ("ops", "operators"),
)
# Old traces have whole microseconds, each rounded by itself.
_RESOLUTION_NS: Final = 1_000


def beyond_recording(raw: Mapping[str, pl.DataFrame]) -> tuple[str, ...]:
    """A sentence with number and size where rows of `raw` end after the last recording."""
    stopped_ns = raw["recordings"]["end_ns"].max()
    if not isinstance(stopped_ns, int):
        return ()
    late = {what: (raw[table]["end_ns"] - stopped_ns).to_numpy() for table, what in _TABLES}
    late = {what: ns[ns > _RESOLUTION_NS] for what, ns in late.items()}
    counts = ", ".join(f"{len(ns)} of {what}" for what, ns in late.items() if len(ns))
    if not counts:
        return ()
    largest_ns = max(ns.max() for ns in late.values() if len(ns))
    return (
        f"Events that end after the recording stopped, by up to {largest_ns / 1e3:.3g} us: "
        f"{counts}. Their times are damaged, or they are of another recording.",
    )
