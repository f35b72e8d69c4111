"""Segments of torch's CUDA allocator -> rows of the table memory_blocks.

Source of the fields: pytorch torch/csrc/cuda/Module.cpp, THCPModule_memorySnapshot, and
torch/csrc/cuda/memory_snapshot.cpp.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from operator import is_
from typing import Any, Final

from gpuprof.collectors.stacks import shortened

_STATES: Final = {
    "active_allocated": "allocated",
    "active_pending_free": "pending free",
    "active_awaiting_free": "pending free",
    "inactive": "free",
}


# What the stacks of one snapshot take together. Real ones stay far below.
_MOST_BYTES: Final = 1 << 27
# Of each list of frames, to be known again.
_LIST_BYTES: Final = 200
# Of lists that are known again by their frames; programs have a few thousand stacks.
_MOST_KNOWN_BYTES: Final = 1 << 25


class StackText(str):
    """The text of a stack, which may stand where its frames did; no file holds one."""

    __slots__ = ()


class Stacks:
    """The text of stacks, each made once: many blocks and entries share one list of frames."""

    def __init__(self) -> None:
        # With the list itself, whose id is taken as long as it lives.
        self._texts: dict[int, tuple[Any, StackText]] = {}
        # Lists with the same frames share their text.
        self._same: dict[str, StackText] = {}
        # Frames by the hash of their ids, with their text.
        self._known: dict[int, tuple[tuple[Any, ...], StackText]] = {}
        self._known_bytes = 0
        self._left_bytes = _MOST_BYTES

    @property
    def held_bytes(self) -> int:
        """What they take in memory."""
        return _MOST_BYTES - self._left_bytes + self._known_bytes

    def text(self, holder: Mapping[str, Any]) -> str | None:
        """The frames of a block or entry, shortened; None without any.

        Raises as `made`.
        """
        frames = holder.get("frames")
        if not frames:
            return None
        if type(frames) is StackText:
            return frames
        known = self._texts.get(id(frames))
        if known is None:
            self._take_up(_LIST_BYTES)
            known = self._texts[id(frames)] = (frames, self.made(frames))
        return known[1]

    def made(self, frames: Iterable[Mapping[str, Any]]) -> StackText:
        """The text of `frames`.

        Raises `ValueError` where all of them together are too long, as `number` and `KeyError`
        where they have another form.
        """
        held = tuple(frames)
        key = hash(tuple(map(id, held)))
        known, text = self._known.get(key, ((), None))
        if text is not None and len(known) == len(held) and all(map(is_, known, held)):
            return text
        text = self._made(held)
        size = sys.getsizeof(held) + _LIST_BYTES
        if self._known_bytes + size <= _MOST_KNOWN_BYTES:
            self._known[key] = held, text
            self._known_bytes += size
        return text

    def _made(self, frames: tuple[Mapping[str, Any], ...]) -> StackText:
        text = StackText(shortened(map(_line, frames)))
        known = self._same.setdefault(text, text)
        if known is text:
            self._take_up(sys.getsizeof(text))
        return known

    def _take_up(self, size: int) -> None:
        self._left_bytes -= size
        if self._left_bytes < 0:
            raise ValueError("its stacks are too long")


def _line(frame: Mapping[str, Any]) -> str:
    file, name = frame["filename"], frame["name"]
    if type(file) is not str or type(name) is not str:
        raise TypeError
    return f"{file}:{number(frame['line'])} {name}"


def number(value: Any) -> int:
    """`value` where it is an integer that fits into 64 bits. Raises `TypeError` else."""
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise TypeError
    return value


def block_rows(
    segments: Iterable[Mapping[str, Any]], *, moment: str, time_ns: int, stacks: Stacks
) -> Iterator[dict[str, Any]]:
    """One row a block of `segments`, as a snapshot lists them.

    Raises `KeyError`, `TypeError`, `ValueError` or `AttributeError` where they have another form.
    """
    for segment in segments:
        address = number(segment["address"])
        whole = {
            "time_ns": time_ns,
            "moment": moment,
            "device": number(segment["device"]),
            "segment": address,
            "segment_bytes": number(segment["total_size"]),
        }
        for block in segment["blocks"]:
            size = number(block["size"])
            row = {
                # Before torch 2.2 blocks have no address; they stand in order.
                "address": number(block.get("address", address)),
                "bytes": size,
                "requested": number(block.get("requested_size", size)),
                "state": _STATES[block["state"]],
                "stack": stacks.text(block),
            }
            yield {**whole, **row}
            address += size
