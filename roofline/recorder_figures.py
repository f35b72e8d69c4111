"""What the flight recorder says of all ranks: a part of an `Analysis`.

Frozen structs; unknown is None or empty. Times are integer nanoseconds on the Unix clock.
"""

import msgspec


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One collective, send or receive as one rank or several ranks recorded it alike."""

    ranks: tuple[int, ...]
    # As torch calls it; of several in one launch, joined by +.
    collective: str
    group: str
    sequence: int | None = None
    message_bytes: int | None = None
    # "[[1024, 1024]] BFloat16 -> ...": what must agree over the ranks.
    tensors: str = ""
    # Nobody waits for it any more, and it was not given up; None where no end is recorded.
    finished: bool | None = None
    # "train.py:42 step": the program's own line; "" without stacks.
    line: str = ""


class StuckCollective(msgspec.Struct, frozen=True, kw_only=True):
    """The first collective of a group that some rank entered and did not leave."""

    group: str
    description: str = ""
    sequence: int | None = None
    # What was entered, one row for each form of it: more than one where ranks disagree.
    calls: tuple[RecordedCall, ...]
    # Ranks that entered and have not left it; those that have left it; those whose last collective
    # of the group is an earlier one; members without a dump.
    waiting: tuple[int, ...]
    left: tuple[int, ...] = ()
    not_entered: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    # Whether the members of the group are known: else `not_entered` may lack some.
    members_known: bool = True
    # False: of a log, which tells when ranks entered and not when they left.
    ends_recorded: bool = True
    # Recorded behind it in the same group, on the rank that has most.
    behind: int = 0
    # The last that each rank which has not entered recorded in any group; at most eight.
    last_calls: tuple[RecordedCall, ...] = ()


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """The first collective of a group in which ranks did different things."""

    group: str
    description: str = ""
    sequence: int
    calls: tuple[RecordedCall, ...]


class RecorderFindings(msgspec.Struct, frozen=True, kw_only=True):
    """All dumps of a job together."""

    # With a dump.
    ranks: tuple[int, ...]
    groups: int
    records: int
    # Of each group the first, those of the most ranks first.
    stuck: tuple[StuckCollective, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
