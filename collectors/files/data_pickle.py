"""Pickles that hold nothing but data, read without the means to hold anything else.

A pickle is a program for a machine with a stack, some of whose instructions call functions by name
(Python's pickletools.py describes them). Here are only those that make None, bool, int, float, str,
bytes, list, tuple, dict and set; any other ends the reading. Python's own unpickler is not used
even with its names taken away: an index of its memo can make it allocate any amount of memory, and
hashing a deeply nested key can end the process.

Each instruction makes at most one object, no larger than its own bytes, so that memory is in
proportion to the file. Nothing here recurses, and keys and members of sets are scalars.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gpuprof.collectors.errors import CaptureError

_PROTOCOLS: Final = range(2, 6)
# Marks open at one time, that is how deep what is being built nests.
_DEEPEST: Final = 1000
# Python limits what it reads from text, not from bytes; a size or an address has 8.
_LONGEST_INTEGER: Final = 16
_STOP, _BYTE, _DICT, _GET_BYTE, _GET, _MEMOIZE = *b".K}hj", 0x94
_SCALARS: Final = (str, int, float, bytes, type(None))
_CALLS: Final = {
    ord("c"): "a name to import",
    ord("i"): "a name to import",
    0x93: "a name to import",
    ord("R"): "a call of a function",
    ord("o"): "a call of a class",
    0x81: "a call of a class",
    0x92: "a call of a class",
    ord("b"): "the state of an object",
    0x82: "a registered class",
    0x83: "a registered class",
    0x84: "a registered class",
    ord("P"): "an object kept elsewhere",
    ord("Q"): "an object kept elsewhere",
    0x97: "a buffer kept elsewhere",
}


class NotData(Exception):
    """What the pickle does beside making data, or why it cannot be read, and at which byte."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.position = position


def load_data(content: bytes) -> Any:
    """The one object in `content`. Raises `NotData` where it is not all data, or damaged."""
    machine = _Machine(content)
    try:
        return machine.run()
    except NotData:
        raise
    # What damaged instructions do: read past the end, take from an empty stack, fill a number.
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise NotData("it is damaged or cut off", machine.position) from error


def data_of(path: Path, content: bytes, *, expected: str) -> Any:
    """The object in `content`, which was read from `path`.

    Raises `CaptureError` where it is not all data, or damaged.
    """
    try:
        return load_data(content)
    except NotData as error:
        raise CaptureError(
            path, error.problem, place=f"byte {error.position}", expected=expected
        ) from error


class _Machine:
    def __init__(self, content: bytes) -> None:
        self.position = 0
        self._content = content
        self._stack: list[Any] = []
        # What was on the stack below each open mark.
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        if len(self._content) < 2 or self._content[0] != 0x80:
            raise NotData("a pickle of protocol 0 or 1, which torch does not write", 0)
        # The instructions that snapshots consist of are done here: a call each takes three times
        # as long, and a large snapshot has a hundred million.
        content, memo, stack, position = self._content, self._memo, self._stack, 0
        while True:
            code = content[position]
            position += 1
            if code == _GET_BYTE:
                stack.append(memo[content[position]])
                position += 1
            elif code == _GET:
                stack.append(memo[int.from_bytes(content[position : position + 4], "little")])
                position += 4
            elif code == _MEMOIZE:
                memo[len(memo)] = stack[-1]
            elif code == _BYTE:
                stack.append(content[position])
                position += 1
            elif code == _DICT:
                stack.append({})
            elif code == _STOP:
                self.position = position
                return stack.pop()
            else:
                self.position = position
                self._step(code)
                position, stack = self.position, self._stack

    def _step(self, code: int) -> None:
        step = _STEPS.get(code)
        if step is None:
            what = _CALLS.get(code, f"the unknown instruction {code:#04x}")
            raise NotData(f"it holds {what}, and only data is read", self.position - 1)
        step(self)

    def _take(self, size: int) -> bytes:
        begin = self.position
        self.position = begin + size
        taken = self._content[begin : begin + size]
        if len(taken) < size:
            raise IndexError(begin)
        return taken

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _since_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._below.pop()
        return items

    # -- instructions --------------------------------------------------------------------------

    def protocol(self) -> None:
        if self._number(1) not in _PROTOCOLS:
            raise ValueError

    def frame(self) -> None:
        self._number(8)

    def mark(self) -> None:
        if len(self._below) >= _DEEPEST:
            raise NotData(f"it nests deeper than {_DEEPEST}", self.position)
        self._below.append(self._stack)
        self._stack = []

    def drop(self) -> None:
        self._stack.pop()

    def none(self) -> None:
        self._stack.append(None)

    def true(self) -> None:
        self._stack.append(True)

    def false(self) -> None:
        self._stack.append(False)

    def two_bytes(self) -> None:
        self._stack.append(self._number(2))

    def four_bytes(self) -> None:
        self._stack.append(int.from_bytes(self._take(4), "little", signed=True))

    def long(self) -> None:
        size = self._number(1)
        if size > _LONGEST_INTEGER:
            raise NotData("it holds an integer of more than 16 bytes", self.position)
        self._stack.append(int.from_bytes(self._take(size), "little", signed=True))

    def float(self) -> None:
        self._stack.append(struct.unpack(">d", self._take(8))[0])

    def text(self, width: int) -> None:
        self._stack.append(self._take(self._number(width)).decode("utf-8", "surrogatepass"))

    def octets(self, width: int) -> None:
        self._stack.append(self._take(self._number(width)))

    def empty(self, kind: Callable[[], Any]) -> None:
        self._stack.append(kind())

    def some(self, count: int) -> None:
        items = tuple(self._stack[-count:])
        if len(items) < count:
            raise IndexError
        self._stack[-count:] = [items]

    def all_since_mark(self) -> None:
        items = tuple(self._since_mark())
        self._stack.append(items)

    def append(self) -> None:
        item = self._stack.pop()
        _checked(self._stack[-1], list).append(item)

    def appends(self) -> None:
        items = self._since_mark()
        _checked(self._stack[-1], list).extend(items)

    def set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        _checked(self._stack[-1], dict)[_scalar(key)] = value

    def set_items(self) -> None:
        items = self._since_mark()
        target = _checked(self._stack[-1], dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_scalar(key)] = value

    def add_items(self) -> None:
        items = self._since_mark()
        _checked(self._stack[-1], set).update(map(_scalar, items))

    def put(self, width: int) -> None:
        self._memo[self._number(width)] = self._stack[-1]


def _checked(target: Any, kind: type[Any]) -> Any:
    if type(target) is not kind:
        raise TypeError
    return target


def _scalar(key: Any) -> Any:
    if not isinstance(key, _SCALARS):
        raise TypeError
    return key


_STEPS: Final[dict[int, Callable[[_Machine], None]]] = {
    0x80: _Machine.protocol,
    0x95: _Machine.frame,
    ord("("): _Machine.mark,
    ord("0"): _Machine.drop,
    ord("N"): _Machine.none,
    0x88: _Machine.true,
    0x89: _Machine.false,
    ord("M"): _Machine.two_bytes,
    ord("J"): _Machine.four_bytes,
    0x8A: _Machine.long,
    ord("G"): _Machine.float,
    0x8C: lambda machine: machine.text(1),
    ord("X"): lambda machine: machine.text(4),
    0x8D: lambda machine: machine.text(8),
    ord("C"): lambda machine: machine.octets(1),
    ord("B"): lambda machine: machine.octets(4),
    0x8E: lambda machine: machine.octets(8),
    ord("]"): lambda machine: machine.empty(list),
    ord(")"): lambda machine: machine.empty(tuple),
    0x8F: lambda machine: machine.empty(set),
    0x85: lambda machine: machine.some(1),
    0x86: lambda machine: machine.some(2),
    0x87: lambda machine: machine.some(3),
    ord("t"): _Machine.all_since_mark,
    ord("a"): _Machine.append,
    ord("e"): _Machine.appends,
    ord("s"): _Machine.set_item,
    ord("u"): _Machine.set_items,
    0x90: _Machine.add_items,
    ord("q"): lambda machine: machine.put(1),
    ord("r"): lambda machine: machine.put(4),
}
