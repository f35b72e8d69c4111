"""What a transfer takes however small it is: alpha, where a link's bandwidth gives beta.

A transfer of b bytes takes at least alpha + b / bandwidth (Hockney 1994, Parallel Computing 20(3)).
Below alpha times the bandwidth the size hardly matters, and a share of the bandwidth says nothing.
"""

from typing import Final

# Copies of 4 KiB of an H200, as CUPTI times them (`gpuprof calibrate`, pinned and pageable alike).
# Others take longer, none was seen to take less: 2.2 us from an H100 to its host, 0.8 to it for 40
# bytes (recordings of TraceLens), 2 us from an A100 (HTA).
COPY_NS: Final = {"host to device": 900.0, "device to host": 1_540.0}
# Ring, low-latency protocol, over NVLink: the least that NCCL's own model of its times has (NVIDIA/
# nccl src/graph/tuning.cc, baseLat and hwLat).
_COLLECTIVE_NS: Final = 3_600.0
_HOP_NS: Final = 470.0


def collective_latency_ns(what: str, ranks: int) -> float:
    """The least time of a collective among `ranks` ranks of one host, of any size."""
    hops = {
        "all-reduce": 2 * (ranks - 1),
        "all-gather": ranks - 1,
        "reduce-scatter": ranks - 1,
    }.get(what, 1)
    return _COLLECTIVE_NS + hops * _HOP_NS
