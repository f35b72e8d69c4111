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

    What a file says counts before what its name says. Processes that neither tells, or whose rank
    another has, are numbered after those in the order given.
    """
    ranks: list[dict[int, int]] = [{} for _ in captures]
    taken: set[int] = set()
    unplaced: list[tuple[int, int]] = []
    for source in _TRUST:
        for index, capture in enumerate(captures):
            for process in capture.processes:
                if process.rank_from != source:
                    continue
                if source != "order" and process.rank not in taken:
                    ranks[index][process.rank] = process.rank
                    taken.add(process.rank)
                else:
                    unplaced.append((index, process.rank))
    none_stated = not taken
    # In the order of the files, whatever they claim.
    for index, rank in sorted(unplaced):
        ranks[index][rank] = max(taken, default=-1) + 1
        taken.add(ranks[index][rank])
    numbered = [
        renumbered(capture, mapping) for capture, mapping in zip(captures, ranks, strict=True)
    ]
    if none_stated:
        return numbered, ["no file names its rank: ranks are numbered in the order of the files"]
    given = [
        f"{captures[index].manifest.title} is rank {ranks[index][rank]}"
        for index, rank in sorted(unplaced)
    ]
    if not given:
        return numbered, []
    return numbered, [
        "some files name no rank, or one that another file has; they are numbered in the order of "
        f"the files: {_some(given)}"
    ]


def without_bystanders(captures: Sequence[Capture]) -> tuple[list[Capture], list[str]]:
    """`captures` without the processes that are no rank of the job, and a warning that names them.

    A server's front end, a coordinator: it names no rank and gives a device no work, where others
    do one or the other.
    """
    found = [capture for capture in captures if _is_bystander(capture)]
    others = [capture for capture in captures if not _is_bystander(capture)]
    if not found or not others:
        return list(captures), []
    names = _some([capture.manifest.title for capture in found])
    return others, [f"left out: {names}: no device work and no rank, so no rank of the job"]


def _is_bystander(capture: Capture) -> bool:
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
