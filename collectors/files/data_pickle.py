"""Pickles that hold nothing but data, read without the means to hold anything else.

A pickle is a program for a machine with a stack, some of whose instructions call functions by name
(Python's pickletools.py describes them). Here are only those that make None, bool, int, float, str,
bytes, list, tuple, dict and set; any other ends the reading. Python's own unpickler is not used
even with its names taken away: an index of its memo can make it allocate any amount of memory, and
hashing a deeply nested key can end the process.

What the objects take is added up while they are made, and ends the reading at a limit: an empty
list is one byte of a pickle and 56 of memory, an empty set 216. Nothing here recurses, and keys and
members of sets are scalars.
"""

import struct
import sys
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any, Final

from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.memory_limit import MOST_BYTES

_PROTOCOLS: Final = range(2, 6)
# Marks open at one time, that is how deep what is being built nests.
_DEEPEST: Final = 1000
# Python limits what it reads from text, not from bytes; a size or an address has 8.
_LONGEST_INTEGER: Final = 16
# Of one reference in a list that grows.
_REFERENCE_BYTES: Final = 9
_DICT_BYTES: Final = sys.getsizeof({})
# Instructions between two looks at what is left.
_BETWEEN_LOOKS: Final = 1 << 14
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


class TooMuchData(NotData):
    """That its objects take too much memory, at which byte."""


def load_data(content: bytes, most_bytes: int = MOST_BYTES) -> Any:
    """The one object in `content`.

    Raises `NotData` where it is not all data, damaged, or would take more than `most_bytes`.
    """
    machine = _Machine(content, most_bytes)
    try:
        return machine.run()
    except NotData:
        raise
    # What damaged instructions do: read past the end, take from an empty stack, fill a number.
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise NotData("it is damaged or cut off", machine.position) from error


def data_of(path: Path, content: bytes, *, expected: str, remedy: str) -> Any:
    """The object in `content`, which was read from `path`.

    Raises `CaptureError` where it is not all data, or damaged, and with `remedy` where it would
    take more than `MOST_BYTES`.
    """
    try:
        return load_data(content, MOST_BYTES)
    except TooMuchData as error:
        raise CaptureError(
            path, error.problem, place=f"byte {error.position}", remedy=remedy
        ) from error
    except NotData as error:
        raise CaptureError(
            path, error.problem, place=f"byte {error.position}", expected=expected
        ) from error


class _Machine:
    def __init__(self, content: bytes, most_bytes: int) -> None:
        self.position = 0
        self._content = content
        self._most_bytes = most_bytes
        self._left_bytes = most_bytes - len(content)
        self._stack: list[Any] = []
        # What was on the stack below each open mark.
        self._below: list[list[Any]] = []
        self._memo: list[Any] = []

    def run(self) -> Any:
        if len(self._content) < 2 or self._content[0] != 0x80:
            raise NotData("a pickle of protocol 0 or 1, which torch does not write", 0)
        # The instructions that snapshots consist of are done here: a call each takes three times
        # as long, and a large snapshot has a hundred million.
        content, memo, stack, position = self._content, self._memo, self._stack, 0
        while True:
            dictionaries = 0
            for _ in repeat(None, _BETWEEN_LOOKS):
                code = content[position]
                position += 1
                if code == _GET_BYTE:
                    stack.append(memo[content[position]])
                    position += 1
                elif code == _GET:
                    stack.append(memo[int.from_bytes(content[position : position + 4], "little")])
                    position += 4
                elif code == _MEMOIZE:
                    memo.append(stack[-1])
                elif code == _BYTE:
                    stack.append(content[position])
                    position += 1
                elif code == _DICT:
                    stack.append({})
                    dictionaries += 1
                elif code == _STOP:
                    self.position = position
                    return stack.pop()
                else:
                    self.position = position
                    self._step(code)
                    position, stack = self.position, self._stack
            self.position = position
            self._take_up(dictionaries * _DICT_BYTES)
            self._refuse_long_stacks()

    def _take_up(self, size: int) -> None:
        """Count `size` more bytes of memory that objects take."""
        self._left_bytes -= size
        if self._left_bytes < 0:
            raise TooMuchData(
                f"its objects take more than {self._most_bytes >> 20} MiB of memory", self.position
            )

    def _refuse_long_stacks(self) -> None:
        references = len(self._memo) + len(self._stack) + sum(map(len, self._below))
        if references * _REFERENCE_BYTES > self._left_bytes:
            self._take_up(references * _REFERENCE_BYTES)

    def _put_on(self, made: Any) -> None:
        """Put what was made of the content on the stack."""
        self._take_up(sys.getsizeof(made))
        self._stack.append(made)

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
        self._put_on(self._number(2))

    def four_bytes(self) -> None:
        self._put_on(int.from_bytes(self._take(4), "little", signed=True))

    def long(self) -> None:
        size = self._number(1)
        if size > _LONGEST_INTEGER:
            raise NotData("it holds an integer of more than 16 bytes", self.position)
        self._put_on(int.from_bytes(self._take(size), "little", signed=True))

    def float(self) -> None:
        self._put_on(struct.unpack(">d", self._take(8))[0])

    def text(self, width: int) -> None:
        self._put_on(self._take(self._number(width)).decode("utf-8", "surrogatepass"))

    def octets(self, width: int) -> None:
        self._put_on(self._take(self._number(width)))

    def empty(self, kind: Callable[[], Any]) -> None:
        self._put_on(kind())

    def some(self, count: int) -> None:
        items = tuple(self._stack[-count:])
        if len(items) < count:
            raise IndexError
        del self._stack[-count:]
        self._put_on(items)

    def all_since_mark(self) -> None:
        items = tuple(self._since_mark())
        self._put_on(items)

    def append(self) -> None:
        item = self._stack.pop()
        target, before = self._growing(list)
        target.append(item)
        self._take_up(sys.getsizeof(target) - before)

    def appends(self) -> None:
        items = self._since_mark()
        target, before = self._growing(list)
        target.extend(items)
        self._take_up(sys.getsizeof(target) - before)

    def set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        target, before = self._growing(dict)
        target[_scalar(key)] = value
        self._take_up(sys.getsizeof(target) - before)

    def set_items(self) -> None:
        items = self._since_mark()
        target, before = self._growing(dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_scalar(key)] = value
        self._take_up(sys.getsizeof(target) - before)

    def add_items(self) -> None:
        items = self._since_mark()
        target, before = self._growing(set)
        target.update(map(_scalar, items))
        self._take_up(sys.getsizeof(target) - before)

    def _growing(self, kind: type[Any]) -> tuple[Any, int]:
        """What is on the stack, of this type, and its bytes before something is put into it."""
        target = self._stack[-1]
        if type(target) is not kind:
            raise TypeError
        return target, sys.getsizeof(target)

    def put(self, width: int) -> None:
        index, memo = self._number(width), self._memo
        if index == len(memo):
            memo.append(self._stack[-1])
        elif index < len(memo):
            memo[index] = self._stack[-1]
        # Python 2 counted from 1.
        elif index == 1:
            memo += [None, self._stack[-1]]
        else:
            raise IndexError


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
