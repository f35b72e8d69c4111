"""Who hangs in which collective, from the dumps of torch's flight recorder of all ranks.

A collective ends when all ranks of its group have entered it. The first one of a group that a rank
entered and did not leave is the one that holds it up: ranks whose last collective of the group is
an earlier one have not come to it. A recorder keeps the last few thousand records only, so a rank
that is beyond a collective has left it, whether its record is still there or not.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import polars as pl

from gpuprof.collectors.stacks import user_line
from gpuprof.roofline.ranks.stacked import stacked
from gpuprof.roofline.ranks.summary import RankSummary
from gpuprof.roofline.recorder_figures import (
    Disagreement,
    RecordedCall,
    RecorderFindings,
    StuckCollective,
)

# Of collectives on the host the recorder keeps no events: they are done when nobody waits for them.
_WITHOUT_EVENTS: Final = ("gloo",)
# All ranks put in as much, and get as much.
_OF_EQUAL_SIZES: Final = (
    "all_reduce",
    "allreduce_coalesced",
    "all_reduce_barrier",
    "broadcast",
    "reduce",
    "_allgather_base",
    "_all_gather_base",
    "all_gather_single",
    "all_gather_into_tensor_coalesced",
    "_reduce_scatter_base",
    "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced",
)
_MOST_LAST_CALLS: Final = 8


@dataclass
class _Group:
    """The records of one group: by rank, in order."""

    name: str
    description: str = ""
    # Numbers in the job in order of the group's own; empty where unknown.
    members: tuple[int, ...] = ()
    # Of each rank its collectives by sequence number; sends and receives in order.
    collectives: dict[int, dict[int, list[dict[str, Any]]]] = field(default_factory=dict)
    sends: dict[int, list[dict[str, Any]]] = field(default_factory=dict)


def recorder_findings(summaries: Sequence[RankSummary]) -> RecorderFindings | None:
    """What the dumps of all ranks say; None where there are none."""
    if not summaries:
        return None
    records = stacked(summaries, "records").sort("rank", "record")
    if records.is_empty():
        return None
    ranks = tuple(sorted(records["rank"].unique().to_list()))
    last = _last_records(records)
    groups = _groups(summaries, records)
    stuck: list[StuckCollective] = []
    disagreements: list[Disagreement] = []
    for group in groups:
        stuck += _stuck_in(group, ranks, last)
        stuck += _stuck_sends(group, ranks, last)
        disagreements += _disagreement_in(group)
    return RecorderFindings(
        ranks=ranks,
        groups=len(groups),
        records=records.height,
        stuck=tuple(sorted(stuck, key=lambda one: -len(one.waiting) - len(one.not_entered))),
        disagreements=tuple(disagreements),
    )


def _groups(summaries: Sequence[RankSummary], records: pl.DataFrame) -> list[_Group]:
    """By name and members: a split of a group may give several of one name."""
    told = {
        (each.rank, group.name): group
        for each in summaries
        for group in each.process.process_groups
    }
    groups: dict[tuple[str, tuple[int, ...]], _Group] = {}
    for row in records.iter_rows(named=True):
        name = row["group"] or ""
        known = told.get((row["rank"], name))
        members = () if known is None else known.ranks
        group = groups.setdefault((name, members), _Group(name, members=members))
        group.description = group.description or ("" if known is None else known.description)
        if row["point_to_point"]:
            group.sends.setdefault(row["rank"], []).append(row)
        elif row["sequence"] is not None:
            of_rank = group.collectives.setdefault(row["rank"], {})
            of_rank.setdefault(row["sequence"], []).append(row)
    return list(groups.values())


def _stuck_in(
    group: _Group, ranks: Sequence[int], last: Mapping[int, dict[str, Any]]
) -> list[StuckCollective]:
    ends_recorded = any(
        row["state"] is not None
        for of_rank in group.collectives.values()
        for rows in of_rank.values()
        for row in rows
    )
    sequence = _first_open(group) if ends_recorded else _first_not_common(group)
    if sequence is None:
        return []
    members = group.members or tuple(sorted(group.collectives))
    entered = {
        rank: of_rank[sequence]
        for rank, of_rank in group.collectives.items()
        if sequence in of_rank
    }
    waiting = tuple(sorted(rank for rank, rows in entered.items() if not _all_finished(rows)))
    furthest = {rank: max(of_rank) for rank, of_rank in group.collectives.items()}
    # A dump that holds unfinished records only says nothing of a group without one.
    absent = [rank for rank in members if rank in ranks and furthest.get(rank, -1) < sequence]
    not_entered = [
        rank for rank in absent if rank in furthest or not _holds_unfinished_only(last[rank])
    ]
    known = {*waiting, *not_entered}
    left = [rank for rank in members if rank in furthest and rank not in known]
    return [
        StuckCollective(
            group=group.name,
            description=group.description,
            sequence=sequence,
            calls=_calls(entered, group),
            waiting=waiting,
            left=tuple(left),
            not_entered=tuple(not_entered),
            unknown=tuple(rank for rank in members if rank not in {*known, *left}),
            members_known=bool(group.members),
            ends_recorded=ends_recorded,
            behind=max(
                sum(number > sequence for number in group.collectives[rank]) for rank in waiting
            ),
            last_calls=tuple(
                _call((rank,), [last[rank]["row"]]) for rank in not_entered[:_MOST_LAST_CALLS]
            ),
        )
    ]


def _first_open(group: _Group) -> int | None:
    """The first that a rank entered and did not leave."""
    found = (
        sequence
        for of_rank in group.collectives.values()
        for sequence, rows in of_rank.items()
        if not _all_finished(rows)
    )
    return min(found, default=None)


def _first_not_common(group: _Group) -> int | None:
    """The first that some rank entered and another did not, where no end is recorded."""
    furthest = [max(of_rank) for of_rank in group.collectives.values()]
    if len(set(furthest)) < 2:
        return None
    return min(
        (
            sequence
            for of_rank in group.collectives.values()
            for sequence in of_rank
            if sequence > min(furthest)
        ),
        default=None,
    )


def _stuck_sends(
    group: _Group, ranks: Sequence[int], last: Mapping[int, dict[str, Any]]
) -> list[StuckCollective]:
    """Of each pair the first send or receive that did not end, and whether its peer has come."""
    found = []
    numbers = {rank: number for number, rank in enumerate(group.members)}
    seen: set[tuple[int, int, int | None]] = set()
    for rank, rows in group.sends.items():
        peers: set[int] = set()
        for row in rows:
            peer = row["peer"]
            if _finished(row) or peer is None or peer in peers:
                continue
            peers.add(peer)
            if group.members and peer >= len(group.members):
                continue
            other = group.members[peer] if group.members else None
            key = (min(rank, other or 0), max(rank, other or 0), row["sequence"])
            if other is not None and key in seen:
                continue
            seen.add(key)
            counterpart = _counterpart(group, row, other, numbers.get(rank))
            calls = {rank: [row]}
            if other is not None and counterpart is not None:
                calls[other] = [counterpart]
            both = len(calls) == 2
            missing = () if other is None or both or other not in ranks else (other,)
            found.append(
                StuckCollective(
                    group=group.name,
                    description=group.description,
                    sequence=row["sequence"],
                    calls=_calls(calls, group),
                    waiting=tuple(sorted(calls)),
                    not_entered=missing,
                    unknown=() if other is None or both or missing else (other,),
                    members_known=bool(group.members),
                    last_calls=tuple(_call((one,), [last[one]["row"]]) for one in missing),
                )
            )
    return found


def _counterpart(
    group: _Group, row: Mapping[str, Any], other: int | None, number: int | None
) -> dict[str, Any] | None:
    """The record of the peer for the same message of the pair."""
    if other is None:
        return None
    wanted = "recv" if row["collective"] == "send" else "send"
    return next(
        (
            each
            for each in group.sends.get(other, [])
            if (each["collective"], each["peer"], each["sequence"])
            == (wanted, number, row["sequence"])
        ),
        None,
    )


def _disagreement_in(group: _Group) -> list[Disagreement]:
    """The first collective that ranks recorded with other kinds, or sizes that must be equal."""
    sequences = sorted({number for of_rank in group.collectives.values() for number in of_rank})
    for sequence in sequences:
        entered = {
            rank: of_rank[sequence]
            for rank, of_rank in group.collectives.items()
            if sequence in of_rank
        }
        kinds = {_kind(rows) for rows in entered.values()}
        forms = {_tensors(rows) for rows in entered.values()}
        if len(kinds) > 1 or (len(forms) > 1 and kinds <= set(_OF_EQUAL_SIZES)):
            return [
                Disagreement(
                    group=group.name,
                    description=group.description,
                    sequence=sequence,
                    calls=_calls(entered, group),
                )
            ]
    return []


def _calls(entered: Mapping[int, list[dict[str, Any]]], group: _Group) -> tuple[RecordedCall, ...]:
    """One for each form in which ranks recorded it, that of the most ranks first."""
    forms: dict[tuple[str, str], list[int]] = {}
    for rank, rows in sorted(entered.items()):
        kind = _kind(rows)
        equal = kind in _OF_EQUAL_SIZES or len(entered) == 1
        forms.setdefault((kind, _tensors(rows) if equal else ""), []).append(rank)
    calls = [_call(tuple(ranks), entered[ranks[0]]) for ranks in forms.values()]
    return tuple(sorted(calls, key=lambda call: -len(call.ranks)))


def _call(ranks: tuple[int, ...], rows: Sequence[Mapping[str, Any]]) -> RecordedCall:
    first = rows[0]
    sizes = [row["message_bytes"] for row in rows]
    return RecordedCall(
        ranks=ranks,
        collective=_kind(rows),
        group=first["group"] or "",
        sequence=first["sequence"],
        message_bytes=sum(sizes) if None not in sizes else None,
        tensors=_tensors(rows),
        finished=None if first["state"] is None else _all_finished(rows),
        line=user_line(first["stack"] or ""),
    )


def _kind(rows: Sequence[Mapping[str, Any]]) -> str:
    """Equal neighbours once: a launch may hold several."""
    return " + ".join(name for name, _ in groupby(row["collective"] or "" for row in rows))


def _tensors(rows: Iterable[Mapping[str, Any]]) -> str:
    return " + ".join(
        f"{row['input_sizes']} to {row['output_sizes']} {row['dtype'] or ''}".rstrip()
        for row in rows
    )


def _all_finished(rows: Iterable[Mapping[str, Any]]) -> bool:
    return all(_finished(row) for row in rows)


def _finished(row: Mapping[str, Any]) -> bool:
    if row["backend"] in _WITHOUT_EVENTS:
        return bool(row["retired"])
    return bool(row["state"] == "completed")


def _last_records(records: pl.DataFrame) -> dict[int, dict[str, Any]]:
    """Of each rank its last record, and whether it recorded any that is finished; in order."""
    found: dict[int, dict[str, Any]] = {}
    for row in records.iter_rows(named=True):
        before = found.get(row["rank"], {"finished": False})
        found[row["rank"]] = {"row": row, "finished": before["finished"] or _finished(row)}
    return found


def _holds_unfinished_only(last: Mapping[str, Any]) -> bool:
    return not last["finished"]
