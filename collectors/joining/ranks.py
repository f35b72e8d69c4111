"""Which rank of the job a file is: what it says itself, else what its name says, else its order."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import RankSource

# rank1, rank_00003, rank-34, Rank=2; not the rank within a node.
_RANK_IN_NAME: Final = re.compile(
    r"(?<![a-z])(?<!local_)(?<!local-)rank[-_=]?(\d{1,6})(?!\d)", re.IGNORECASE
)
_TRUST: Final[tuple[RankSource, ...]] = ("content", "file name", "order")
# Of the files that a warning is about, those that it names.
_NAMED_FILES: Final = 3
# Of each process of one file the rank that it has there, and what says so.
Claims = Sequence[tuple[int, RankSource]]


def with_rank_of_name(capture: Capture, name: str) -> Capture:
    """`capture` as the rank that the file's `name` says, where the file itself does not.

    A file of several processes, and a name that says several ranks, stay as they are.
    """
    ranks = {int(digits) for digits in _RANK_IN_NAME.findall(name)}
    if len(capture.processes) != 1 or capture.processes[0].rank_from != "order" or len(ranks) != 1:
        return capture
    (process,) = capture.processes
    (rank,) = ranks
    named = capture.with_processes((msgspec.structs.replace(process, rank_from="file name"),))
    return renumbered(named, {process.rank: rank})


def with_distinct_ranks(captures: Sequence[Capture]) -> tuple[list[Capture], list[str]]:
    """`captures` with a rank of its own for every process, and warnings about those that got one.

    As `distinct_ranks` says.
    """
    ranks, warnings = distinct_ranks(
        [capture.manifest.title for capture in captures],
        [[(each.rank, each.rank_from) for each in capture.processes] for capture in captures],
    )
    numbered = [
        renumbered(capture, mapping) for capture, mapping in zip(captures, ranks, strict=True)
    ]
    return numbered, warnings


def distinct_ranks(
    titles: Sequence[str], claims: Sequence[Claims]
) -> tuple[list[dict[int, int]], list[str]]:
    """Of each file the ranks in the job of its own ranks, and warnings about those that got one.

    What a file says counts before what its name says. Processes that neither tells, or whose rank
    another has, are numbered after those in the order given.
    """
    ranks: list[dict[int, int]] = [{} for _ in claims]
    taken: set[int] = set()
    unplaced: list[tuple[int, int]] = []
    for trusted in _TRUST:
        for index, of_file in enumerate(claims):
            for rank, source in of_file:
                if source != trusted:
                    continue
                if source != "order" and rank not in taken:
                    ranks[index][rank] = rank
                    taken.add(rank)
                else:
                    unplaced.append((index, rank))
    none_stated = not taken
    # In the order of the files, whatever they claim.
    for index, rank in sorted(unplaced):
        ranks[index][rank] = max(taken, default=-1) + 1
        taken.add(ranks[index][rank])
    if none_stated:
        return ranks, ["no file names its rank: ranks are numbered in the order of the files"]
    given = [f"{titles[index]} is rank {ranks[index][rank]}" for index, rank in sorted(unplaced)]
    if not given:
        return ranks, []
    return ranks, [
        "some files name no rank, or one that another file has; they are numbered in the order of "
        f"the files: {_some(given)}"
    ]


def without_bystanders(captures: Sequence[Capture]) -> tuple[list[Capture], list[str]]:
    """`captures` without the processes that are no rank of the job, and a warning that names them.

    A server's front end, a coordinator: it names no rank and gives a device no work, where others
    do one or the other.
    """
    others = [capture for capture in captures if not is_bystander(capture)]
    found = [capture.manifest.title for capture in captures if is_bystander(capture)]
    if not found or not others:
        return list(captures), []
    return others, [bystanders_left_out(found)]


def bystanders_left_out(titles: Sequence[str]) -> str:
    """The warning about processes that are no rank of the job."""
    return f"left out: {_some(titles)}: no device work and no rank, so no rank of the job"


def is_bystander(capture: Capture) -> bool:
    """Whether none of its processes names a rank or gives a device work."""
    return (
        all(process.rank_from == "order" for process in capture.processes)
        and (_ran_on_cpus(capture) or capture.kernels.is_empty())
        and capture.counters.is_empty()
    )


def _ran_on_cpus(capture: Capture) -> bool:
    devices = [device for each in capture.processes for device in each.fingerprint.devices]
    return bool(devices) and all(device.kind == "cpu" for device in devices)


def renumbered(capture: Capture, ranks: Mapping[int, int]) -> Capture:
    """`capture` with the ranks that `ranks` gives for its own."""
    if all(old == new for old, new in ranks.items()):
        return capture
    old, new = list(ranks), list(ranks.values())
    tables = {
        name: frame.with_columns(pl.col("rank").replace_strict(old, new, return_dtype=pl.Int32))
        for name, frame in capture.tables().items()
    }
    processes = tuple(
        msgspec.structs.replace(
            process,
            rank=ranks[process.rank],
            world_size=max(process.world_size, ranks[process.rank] + 1),
        )
        for process in capture.processes
    )
    manifest = msgspec.structs.replace(
        capture.manifest, ranks=tuple(process.rank for process in processes)
    )
    return Capture(manifest, processes, **tables)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_FILES
    return ", ".join(names[:_NAMED_FILES]) + (f" and {more} more" if more > 0 else "")
