"""Collectives by kind, size and number of ranks: what these links do where no rank comes late.

All ranks of torch.distributed's default group measure together. On a GPU a time is the one that
the profiler gives a kernel, so that it can be compared with the kernels of a trace; on a CPU it is
the host's. Of one call the shortest time over the ranks counts: that of the rank that came last.
Only of a broadcast the longest does: its root need not wait for anyone.
"""

import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl
import torch
import torch.distributed as dist

from gpuprof.collectors import kineto
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.link_calibration import CollectiveTimes
from gpuprof.collectors.live.torch_trace import TorchTrace, script_is_profiling
from gpuprof.reference_kernels.calibration.timing import spread
from gpuprof.reference_kernels.collectives.library import library_calls
from gpuprof.reference_kernels.collectives.nccl_algorithm import group_with_algorithm
from gpuprof.roofline.bus_bandwidth import COLLECTIVES, CollectiveName

Call = Callable[[], object]
_KIB: Final = 2**10
# 4 KiB to 256 MiB, on a CPU to 4 MiB.
SIZES: Final = {
    "cuda": tuple(4 * _KIB * 4**power for power in range(9)),
    "cpu": tuple(4 * _KIB * 4**power for power in range(6)),
}
_REPEATS: Final = 11
_WARMUPS: Final = 3
# NCCL's names of them.
_ALGORITHMS: Final = {"ring": "Ring", "tree": "Tree"}
_ITEM_BYTES: Final = 4
_WORD_BYTES: Final = 16


@dataclass(frozen=True)
class _Members:
    """The first ranks of the job, of which this process may be one."""

    ranks: int
    hosts: int
    group: dist.ProcessGroup | None
    # Over gloo, to tell each other what was measured.
    control: dist.ProcessGroup
    algorithm: str = ""

    @property
    def include_this(self) -> bool:
        """Whether this process is one of them."""
        return dist.get_rank() < self.ranks


def measure_collectives(
    device: torch.device,
    sizes: Sequence[int],
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[CollectiveTimes, ...]:
    """Each collective of each of `sizes` bytes among 2, 4, 8, ... and all ranks.

    The same on every rank. Without those that the profiler of a GPU did not record. Raises what the
    backend raises where it does not do one of them.
    """
    found: list[CollectiveTimes] = []
    control = dist.new_group(backend="gloo")
    for members in _groups(device, control):
        measured: list[CollectiveTimes] = []
        for collective in COLLECTIVES:
            if members.include_this and (not members.algorithm or collective == "all-reduce"):
                progress(f"{collective} over {members.ranks} ranks {members.algorithm}".rstrip())
                measured += _measure(collective, sizes, members, device)
        # Rank 0 is of every group; the ranks that are not of this one wait here.
        told: list[Any] = [measured]
        dist.broadcast_object_list(told, src=0, group=control)
        found += told[0]
    return tuple(found)


def _groups(device: torch.device, control: dist.ProcessGroup) -> Iterator[_Members]:
    """Of 2, 4, 8, ... ranks and of all; of all also with each algorithm that NCCL can be told."""
    world = dist.get_world_size()
    hosts: list[str] = [""] * world
    dist.all_gather_object(hosts, socket.gethostname(), group=control)
    power_of_two = 2
    while power_of_two < world:
        members = list(range(power_of_two))
        yield _Members(
            ranks=power_of_two,
            hosts=len(set(hosts[:power_of_two])),
            group=dist.new_group(members),
            control=dist.new_group(members, backend="gloo"),
        )
        power_of_two *= 2
    yield _Members(world, len(set(hosts)), None, control)
    if device.type == "cuda":
        for name, as_nccl_says in _ALGORITHMS.items():
            group = group_with_algorithm(as_nccl_says, device)
            yield _Members(world, len(set(hosts)), group, control, name)


def _measure(
    collective: CollectiveName, sizes: Sequence[int], members: _Members, device: torch.device
) -> Iterator[CollectiveTimes]:
    messages = [_whole_shares(size, members.ranks) for size in sizes]
    own_ns = _durations(_calls(collective, messages, members, device), members, device)
    told: list[Any] = [None] * members.ranks
    dist.all_gather_object(told, own_ns, group=members.control)
    if any(each is None for each in told):
        return
    of_one_call = max if collective == "broadcast" else min
    times = [
        [of_one_call(of_ranks) for of_ranks in zip(*of_size, strict=True)]
        for of_size in zip(*told, strict=True)
    ]
    typical = statistics.median if device.type == "cuda" else min
    yield CollectiveTimes(
        collective=collective,
        backend=str(dist.get_backend(members.group)),
        ranks=members.ranks,
        hosts=members.hosts,
        algorithm=members.algorithm,
        times=tuple(
            (message, float(typical(of_size)))
            for message, of_size in zip(messages, times, strict=True)
        ),
        repeats=_REPEATS,
        spread=spread(times[-1]),
        measured_ns=time.time_ns(),
    )


def _whole_shares(size: int, ranks: int) -> int:
    """`size` bytes or a few more: as many shares as ranks, each of whole 16-byte words."""
    unit = ranks * _WORD_BYTES
    return -(-size // unit) * unit


def _calls(
    collective: CollectiveName, messages: Sequence[int], members: _Members, device: torch.device
) -> list[Call]:
    """One call for each size, on parts of the same two buffers."""
    largest = max(messages) // _ITEM_BYTES
    source = torch.zeros(largest, dtype=torch.float32, device=device)
    output = torch.zeros_like(source)
    calls = []
    for message in messages:
        elements = message // _ITEM_BYTES
        share = elements // members.ranks
        sent = source[: share if collective == "all-gather" else elements]
        got = output[: share if collective == "reduce-scatter" else elements]
        calls.append(library_calls(sent, got, members.group)[collective])
    return calls


def _durations(
    calls: Sequence[Call], members: _Members, device: torch.device
) -> list[list[int]] | None:
    """Nanoseconds on this rank of each repeat of each call; None where nothing recorded them."""
    one = torch.zeros(1, device=device)

    def line_up() -> None:
        dist.all_reduce(one, group=members.group)

    for call in calls:
        for _ in range(_WARMUPS):
            line_up()
            call()
    if device.type != "cuda":
        return [[_timed(line_up, call) for _ in range(_REPEATS)] for call in calls]
    torch.cuda.synchronize()
    durations = _kernel_durations(line_up, calls)
    if durations is None or len(durations) != 2 * _REPEATS * len(calls):
        return None
    # Every other one lines up.
    timed = durations[1::2]
    return [timed[first : first + _REPEATS] for first in range(0, len(timed), _REPEATS)]


def _timed(line_up: Call, call: Call) -> int:
    line_up()
    start = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - start


def _kernel_durations(line_up: Call, calls: Sequence[Call]) -> list[int] | None:
    """Of all collectives' kernels in order of their starts; None where no trace has them."""
    if script_is_profiling():
        return None
    with tempfile.TemporaryDirectory(prefix="gpuprof-") as folder:
        trace = TorchTrace(Path(folder) / "collectives.json", steps=None)
        trace.start()
        for call in calls:
            for _ in range(_REPEATS):
                line_up()
                call()
                torch.cuda.synchronize()
        trace.stop()
        try:
            kernels = kineto.read(trace.export(), advise=False).kernels
        except CaptureError:
            return None
    rows = kernels.filter(pl.col("kind") == "collective").sort("start_ns")
    durations: list[int] = (rows["end_ns"] - rows["start_ns"]).to_list()
    # Another tool may hold CUPTI.
    return durations or None
