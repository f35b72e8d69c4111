"""A line through the times of collectives by size: latency alpha, inverse bandwidth beta.

A message of S bytes takes alpha + beta S (Hockney 1994, Parallel Computing 20(3)). What an
algorithm makes of a hop's own alpha and a link's own beta, for n ranks (Patarasuk and Yuan 2009;
Sanders, Speck and Traeff 2009; NVIDIA/nccl src/graph/tuning.cc):

    ring, all-reduce              2 (n-1) alpha + 2 (n-1)/n S beta
    ring, all-gather and others   (n-1) alpha + (n-1)/n S beta
    tree, all-reduce              2 ceil(log2 n) alpha + 2 S beta

For one number of ranks both are lines, and nothing in the times tells which one ran.
"""

import math
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from gpuprof.roofline.bus_bandwidth import find_collective

Algorithm = Literal["ring", "tree"]
ALGORITHMS: Final[tuple[Algorithm, ...]] = ("ring", "tree")
# A line through fewer sizes, or through sizes this close, tells alpha and beta hardly apart.
_FEWEST_SIZES: Final = 4
_NARROWEST: Final = 16
# The largest message must take so much of alpha longer, or beta is no more than noise.
_TOLD_APART: Final = 0.1
_RING_OF_ONE_PASS: Final = ("all-gather", "reduce-scatter", "all-to-all")

# (bytes of the message, number of ranks, nanoseconds)
TimedMessage = tuple[int, int, float]


class LatencyFit(msgspec.Struct, frozen=True, kw_only=True):
    """alpha and beta by least squares, and how far the times are from them."""

    alpha_ns: float
    beta_ns_per_byte: float
    # Distinct sizes, and distinct numbers of ranks.
    sizes: int
    rank_counts: int
    # Of the measured times: |time - line| / time, the median and the largest.
    typical_error: float
    largest_error: float

    @property
    def bytes_per_s(self) -> float:
        """1 / beta."""
        return 1e9 / self.beta_ns_per_byte


def line_fit(times: Sequence[tuple[int, float]]) -> LatencyFit | str:
    """alpha and beta of a whole collective from (bytes, nanoseconds), or why there are none."""
    return _fitted([(size, 1, ns) for size, ns in times], [(1.0, size) for size, _ in times])


def algorithm_fit(
    collective: str, algorithm: Algorithm, measured: Sequence[TimedMessage]
) -> LatencyFit | str:
    """alpha of a hop and beta of a link under `algorithm`, or why there are none.

    TimedMessages of several numbers of ranks share one alpha and one beta.
    """
    if any(ranks < 2 for _, ranks, _ in measured):
        return "one rank sends nothing"
    shares = [_hops_and_bytes(collective, algorithm, size, ranks) for size, ranks, _ in measured]
    known = [share for share in shares if share is not None]
    if len(known) < len(shares):
        return f"no {algorithm} is known for {collective}"
    return _fitted(measured, known)


def _hops_and_bytes(
    collective: str, algorithm: Algorithm, size: int, ranks: int
) -> tuple[float, float] | None:
    """What alpha and beta are multiplied with."""
    row = find_collective(collective)
    if row is None:
        return None
    if collective == "all-reduce" and algorithm == "tree":
        return 2.0 * math.ceil(math.log2(ranks)), 2.0 * size
    if algorithm == "tree":
        return None
    factor = row.bus_factor(ranks)
    if factor is None:
        return None
    if collective == "all-reduce":
        return 2.0 * (ranks - 1), factor * size
    if collective in _RING_OF_ONE_PASS:
        return float(ranks - 1), factor * size
    return None


def _fitted(
    measured: Sequence[TimedMessage], columns: Sequence[tuple[float, float]]
) -> LatencyFit | str:
    """Least squares of the relative errors: small messages count as much as large ones."""
    # Not above: summaries of captures show such fits, and need no numpy.
    import numpy as np

    sizes = {size for size, _, ns in measured if size > 0 and ns > 0}
    if len(sizes) < _FEWEST_SIZES:
        number = f"{len(sizes)} size{'' if len(sizes) == 1 else 's'}"
        return f"{number}: a line needs {_FEWEST_SIZES}"
    if max(sizes) < _NARROWEST * min(sizes):
        return f"sizes within a factor of {_NARROWEST} of each other tell no line"
    rows = [
        (column, ranks, ns)
        for column, (size, ranks, ns) in zip(columns, measured, strict=True)
        if size > 0 and ns > 0
    ]
    time = np.array([ns for _, _, ns in rows])
    matrix = np.array([column for column, _, _ in rows]) / time[:, None]
    # Scaled, because bytes are millions and hops are few.
    scale = np.abs(matrix).max(axis=0)
    solution, _, rank, _ = np.linalg.lstsq(matrix / scale, np.ones(len(rows)), rcond=None)
    alpha, beta = (float(value) for value in solution / scale)
    most_bytes = max(column[1] for column, _, _ in rows)
    if rank < 2 or beta * most_bytes < _TOLD_APART * alpha:
        return "times do not grow with the size"
    if alpha < 0:
        return "times grow faster than the size: no line through them has a latency"
    errors = np.abs(matrix @ np.array([alpha, beta]) - 1)
    return LatencyFit(
        alpha_ns=alpha,
        beta_ns_per_byte=beta,
        sizes=len(sizes),
        rank_counts=len({ranks for _, ranks, _ in rows}),
        typical_error=float(np.median(errors)),
        largest_error=float(errors.max()),
    )
