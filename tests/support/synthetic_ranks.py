"""Traces of as many ranks as wanted, made from the recordings of one job on a few GPUs.

A rank's trace is the text of a recorded one in which only times and the numbers of ranks are
others, so that a thousand cost seconds: the text is cut at its times once, and put together again
with new ones. Times go through a map that keeps their order and where collectives end, as these
ends are what ranks share. So calls stay within their callers and kernels behind their launches.

From the recordings in which one rank runs extra products (h200x4_straggler, its last rank), the
planted facts are those of `Planted`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from isal import igzip

_TIME: Final = re.compile(rb'"ts": (\d+)\.(\d{3})(?:, "dur": (\d+)\.(\d{3}))?')
_KERNEL: Final = re.compile(rb'"cat": "kernel", "name": "([^"]*)')
_NANOSECONDS: Final = 1000
_RANKS_OF_A_HOST: Final = 8
_MANY_RANKS: Final = 24
# Clocks of hosts that a time service keeps differ by about this much.
_HOSTS_APART_NS: Final = 400_000
WRONG_CLOCK_NS: Final = 1_700_000_000
# By how much the slow device comes later to the first collective of each step, and how much other
# ranks come earlier or later than their recording; each start of a collective varies a little.
SLOWER_NS: Final = 2_000_000
_JITTER_NS: Final = 30_000
_START_JITTER_NS: Final = 2_000
# Before the first collective of a step nothing communicates for longer than this.
_BETWEEN_STEPS_NS: Final = 3_000_000

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Planted:
    """The ranks of a job of `ranks` ranks, 12 at least, with which something is wrong."""

    ranks: int

    @property
    def extra_work(self) -> int:
        """Runs the recorded extra products: comes last in every step, by about 3.9 ms."""
        return self.ranks * 5 // 8

    @property
    def slow_device(self) -> int:
        """Takes longer for everything between collectives that others wait in.

        Of the recordings its text is the first, whose device is not short of work.
        """
        return self.ranks // 18 * 3 + 3

    @property
    def wrong_clock(self) -> int:
        """Its clock is `WRONG_CLOCK_NS` ahead."""
        return self.ranks // 2 - 1

    @property
    def halved(self) -> int:
        """Its file ends in half: before any device work, which is last."""
        return self.ranks * 3 // 4 + 1

    @property
    def unreadable(self) -> int | None:
        """Its file ends in its first lines. None in a small job, of which most must be there."""
        return self.ranks // 3 if self.ranks >= _MANY_RANKS else None


@dataclass(frozen=True)
class Recording:
    """The text of one rank, cut at its times."""

    # One more than times.
    pieces: tuple[bytes, ...]
    start_ns: Times
    # -1 where an event has no length.
    length_ns: Times
    is_collective: npt.NDArray[np.bool_]
    # Other work of the device.
    computes: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, text: bytes, ranks: int) -> "Recording":
        """`text` of a trace as one of a job of `ranks` ranks."""
        text = _of_world(text, ranks)
        found = list(_TIME.finditer(text))
        cuts = [0, *(place for match in found for place in match.span()), len(text)]
        pieces = tuple(text[a:b] for a, b in zip(cuts[::2], cuts[1::2], strict=True))
        kinds = [None if (kind := _KERNEL.search(piece)) is None else kind[1] for piece in pieces]
        return cls(
            pieces,
            np.array([int(each[1]) * _NANOSECONDS + int(each[2]) for each in found]),
            np.array(
                [int(each[3]) * _NANOSECONDS + int(each[4]) if each[3] else -1 for each in found]
            ),
            np.array([kind is not None and kind.startswith(b"nccl") for kind in kinds[:-1]]),
            np.array([kind is not None and not kind.startswith(b"nccl") for kind in kinds[:-1]]),
        )

    def text(self, rank: int, *, later_ns: int = 0, clock_ns: int = 0) -> bytes:
        """The trace of `rank`, whose clock is `clock_ns` ahead.

        It takes `later_ns` longer for what is before the first collective of each step. The
        collectives end when they did, and what follows the last of a step begins when it did.
        """
        generator = np.random.default_rng(rank)
        start, length = self.start_ns.copy(), self.length_ns.copy()
        own = np.flatnonzero(self.is_collective)
        own = own[np.argsort(start[own])]
        begun, ended = start[own], start[own] + length[own]
        firsts = np.flatnonzero(begun - np.concatenate([[0], ended[:-1]]) > _BETWEEN_STEPS_NS)
        lasts = np.concatenate([firsts[1:] - 1, [len(own) - 1]])
        starts = begun + generator.integers(-_START_JITTER_NS, _START_JITTER_NS, len(own))
        # Points of the map of all other events: at a time of the recording they are so much later.
        at, shift = [int(start.min())], [0]
        for first, last in zip(firsts, lasts, strict=True):
            done = self.computes & (start > begun[first]) & (start + length < ended[last])
            computed = int((start + length)[done].max(initial=begun[first]))
            wished = later_ns + int(generator.normal(0, _JITTER_NS))
            # There must be time to wait for the last rank, and for the last collective.
            most = min(ended[first] - begun[first], ended[last] - computed) - _START_JITTER_NS
            moved = int(np.clip(wished, -_JITTER_NS, max(0, most)))
            starts[first] = begun[first] + moved
            at += [int(ended[first - 1]) if first else at[0] + 1, int(begun[first]), computed]
            at.append(max(computed + 1, int(ended[last])))
            shift += [0, moved, moved, 0]
        end = start + np.maximum(length, 0)
        new_start, new_end = (times + _shifts(times, at, shift) for times in (start, end))
        new_start[own], new_end[own] = starts, ended
        lengths = np.where(length >= 0, new_end - new_start, -1)
        parts: list[bytes] = []
        for piece, begins, lasting in zip(
            self.pieces, (new_start + clock_ns).tolist(), lengths.tolist(), strict=False
        ):
            parts.append(piece)
            parts.append(b'"ts": %d.%03d' % divmod(begins, _NANOSECONDS))
            if lasting >= 0:
                parts.append(b', "dur": %d.%03d' % divmod(lasting, _NANOSECONDS))
        parts.append(self.pieces[-1])
        return b"".join(parts).replace(_RANK, b"%d" % rank)


# Stands for the number of the rank in the pieces.
_RANK: Final = b"@RANK@"


def _of_world(text: bytes, ranks: int) -> bytes:
    """`text` with another number of ranks; its own rank is `_RANK`."""
    listed = b"0, 1, ..., %d" % (ranks - 1)
    for pattern, new in (
        (rb'"rank": \d+, "world_size": \d+', b'"rank": %b, "world_size": %d' % (_RANK, ranks)),
        (rb'"pg_size": \d+, "ranks": \[[0-9, ]+\]', b'"pg_size": %d, "ranks": []' % ranks),
        (rb'"Rank": \d+', b'"Rank": %b' % _RANK),
        (rb'"Process Group Ranks": "\[[^\]]*\]"', b'"Process Group Ranks": "[%b]"' % listed),
        (rb'"Group size": \d+', b'"Group size": %d' % ranks),
        (rb"rank\d+\.json", b"rank%b.json" % _RANK),
    ):
        text = re.sub(pattern, new, text)
    return text


def _shifts(times_ns: Times, at: Sequence[int], shift: Sequence[int]) -> Times:
    """What is added to `times_ns`: `shift` at the points `at`, linear between them."""
    origin = at[0]
    points = np.maximum.accumulate(np.array(at) - origin)
    return np.interp(times_ns - origin, points, shift).round().astype(np.int64)


def write_ranks(recordings: Sequence[Path], folder: Path, ranks: int) -> Planted:
    """Write the traces of `ranks` ranks into `folder` and return what is planted in them.

    `recordings` are those of one job, the last one of the rank with extra work. The files are named
    by rank.
    """
    planted = Planted(ranks)
    texts = [igzip.decompress(path.read_bytes()) for path in recordings]
    *ordinary, extra_work = (Recording.of(text, ranks) for text in texts)
    for rank in range(ranks):
        recording = ordinary[rank % len(ordinary)]
        if rank == planted.extra_work:
            recording = extra_work
        host = np.random.default_rng([1, rank // _RANKS_OF_A_HOST])
        clock_ns = int(host.integers(-_HOSTS_APART_NS, _HOSTS_APART_NS))
        if rank == planted.wrong_clock:
            clock_ns += WRONG_CLOCK_NS
        text = recording.text(
            rank,
            later_ns=SLOWER_NS if rank == planted.slow_device else 0,
            clock_ns=clock_ns,
        )
        content: bytes = igzip.compress(text, compresslevel=1, mtime=0)
        if rank == planted.unreadable:
            content = content[:200]
        elif rank == planted.halved:
            content = content[: len(content) // 2]
        (folder / f"job_rank{rank}.json.gz").write_bytes(content)
    return planted
