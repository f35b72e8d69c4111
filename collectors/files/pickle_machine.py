"""Pickles that hold nothing but data, read without the means to hold anything else.

A pickle is a program for a machine with a stack, some of whose instructions call functions by name
(Python's pickletools.py describes them). Here are only those that make None, bool, int, float, str,
bytes, list, tuple, dict and set; any other ends the reading. Python's own unpickler is not used
even with its names taken away: an index of its memo can make it allocate any amount of memory, and
hashing a deeply nested key can end the process.

What the objects take is added up while they are made, and ends the reading at a limit: an empty
list is one byte of a pickle and 56 of memory, an empty set 216. The pickle itself is not held, and
who needs little of many objects has each replaced as soon as it is built (`Replacing`). Nothing
here recurses, and keys and members of sets are scalars.
"""

import math
import struct
import sys
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, Final, Protocol

_PROTOCOLS: Final = range(2, 6)
# Marks open at one time, that is how deep what is being built nests.
_DEEPEST: Final = 1000
# Python limits what it reads from text, not from bytes; a size or an address has 8.
_LONGEST_INTEGER: Final = 16
# Of one reference in a list that grows.
_REFERENCE_BYTES: Final = 9
_DICT_BYTES: Final = sys.getsizeof({})
# Instructions between two looks at what is left, and the most content that those take which are not
# done by a call.
_BETWEEN_LOOKS: Final = 1 << 14
_AHEAD_BYTES: Final = 5 * _BETWEEN_LOOKS
# A text stands in the content, alone and decoded at one time.
_COPIES: Final = 4
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


class Replacing(Protocol):
    """Puts something smaller where a list or dictionary was built."""

    @property
    def held_bytes(self) -> int:
        """The memory that it holds itself."""

    def replaced(self, built: Any) -> Any:
        """What is to stand in the place of `built`, or `built`, whose content goes else.

        It is called whenever items were put into it: Python's pickles do that 1,000 at a time.
        """


class PickleMachine:
    def __init__(
        self, pieces: Iterator[bytes], most_bytes: int, replacing: Replacing | None
    ) -> None:
        self._pieces = pieces
        # The part of the content that is held, what was before it, the place in it, and the place
        # from which on more of it is wanted.
        self._content = b""
        self._passed_bytes = 0
        self._position = 0
        self._enough: float = 0
        self._replacing = replacing
        self._most_bytes = most_bytes
        self._left_bytes = most_bytes
        self._stack: list[Any] = []
        # What was on the stack below each open mark.
        self._below: list[list[Any]] = []
        # How long the memo was at each.
        self._remembered: list[int] = []
        self._memo: list[Any] = []

    @property
    def place(self) -> int:
        """Bytes from the beginning of all content."""
        return self._passed_bytes + self._position

    def run(self) -> Any:
        self._read_ahead(_AHEAD_BYTES)
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
                    self._position = position
                    return stack.pop()
                else:
                    self._position = position
                    self._step(code)
                    if self._position > self._enough:
                        self._read_ahead(_AHEAD_BYTES)
                    content, position, stack = self._content, self._position, self._stack
            self._position = position
            self._take_up(dictionaries * _DICT_BYTES)
            self._refuse_too_many_references()
            self._read_ahead(_AHEAD_BYTES)
            content, position = self._content, self._position

    def _read_ahead(self, size: int) -> None:
        """Hold at least `size` bytes of content from the place on, or all that follows."""
        if self._position + size <= len(self._content):
            return
        parts = [self._content[self._position :]]
        held = len(parts[0])
        while held < size and (piece := next(self._pieces, b"")):
            parts.append(piece)
            held += len(piece)
        self._passed_bytes += self._position
        self._content, self._position = b"".join(filter(None, parts)), 0
        self._enough = held - _AHEAD_BYTES if held >= size else math.inf

    def _take_up(self, size: int) -> None:
        """Count `size` more bytes of memory that objects take."""
        self._left_bytes -= size
        if self._left_bytes < 0:
            raise self._too_much()

    def _too_much(self) -> TooMuchData:
        return TooMuchData(
            f"its objects take more than {self._most_bytes >> 20} MiB of memory", self.place
        )

    def _refuse_too_many_references(self) -> None:
        references = len(self._memo) + len(self._stack) + sum(map(len, self._below))
        held_bytes = self._replacing.held_bytes if self._replacing else 0
        if references * _REFERENCE_BYTES + held_bytes > self._left_bytes:
            raise self._too_much()

    def _put_on(self, made: Any) -> None:
        """Put what was made of the content on the stack."""
        self._take_up(sys.getsizeof(made))
        self._stack.append(made)

    def _step(self, code: int) -> None:
        step = _STEPS.get(code)
        if step is None:
            what = _CALLS.get(code, f"the unknown instruction {code:#04x}")
            raise NotData(f"it holds {what}, and only data is read", self.place - 1)
        step(self)

    def _take(self, size: int) -> bytes:
        taken = self._content[self._position : self._position + size]
        if len(taken) < size:
            most = self._left_bytes // _COPIES
            self._read_ahead(min(size, most))
            taken = self._content[self._position : self._position + size]
            if len(taken) < size:
                raise self._too_much() if len(taken) >= most else IndexError
        self._position += size
        return taken

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _since_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._below.pop()
        self._remembered.pop()
        return items

    # -- instructions --------------------------------------------------------------------------

    def protocol(self) -> None:
        if self._number(1) not in _PROTOCOLS:
            raise ValueError

    def frame(self) -> None:
        self._number(8)

    def mark(self) -> None:
        if len(self._below) >= _DEEPEST:
            raise NotData(f"it nests deeper than {_DEEPEST}", self.place)
        self._below.append(self._stack)
        self._remembered.append(len(self._memo))
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
            raise NotData("it holds an integer of more than 16 bytes", self.place)
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
        self._extend([self._stack.pop()])

    def appends(self) -> None:
        remembered, items = self._remembered[-1], self._since_mark()
        self._extend(items)
        self._replace(items, remembered)

    def _extend(self, items: list[Any]) -> None:
        target, before = self._growing(list)
        target.extend(items)
        self._take_up(sys.getsizeof(target) - before)

    def set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set([key, value])

    def set_items(self) -> None:
        remembered, items = self._remembered[-1], self._since_mark()
        self._set(items)
        self._replace(items, remembered)

    def _set(self, items: list[Any]) -> None:
        target, before = self._growing(dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_scalar(key)] = value
        self._take_up(sys.getsizeof(target) - before)

    def add_items(self) -> None:
        items = self._since_mark()
        target, before = self._growing(set)
        target.update(map(_scalar, items))
        self._take_up(sys.getsizeof(target) - before)

    def _replace(self, items: list[Any], remembered: int) -> None:
        """Let what `items` were put into be replaced; it came last into the memo before them.

        What nothing refers to any more is no longer counted.
        """
        if self._replacing is None:
            return
        built = [self._stack[-1]]
        made = self._replacing.replaced(built[0])
        if made is built[0]:
            return
        self._stack[-1] = made
        if remembered and self._memo[remembered - 1] is built[0]:
            self._memo[remembered - 1] = made
        self._left_bytes += sys.getsizeof(built[0])
        built[0].clear()
        if _references(built, 0) != _ONE_REFERENCE:
            self._left_bytes -= sys.getsizeof(built[0])
        for place in range(len(items)):
            if type(items[place]) is int and _references(items, place) == _ONE_REFERENCE:
                self._left_bytes += sys.getsizeof(items[place])

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


def _references(holder: list[Any], place: int) -> int:
    """As Python counts them, which is not the same in all its versions."""
    return sys.getrefcount(holder[place])


_ONE_REFERENCE: Final = _references([[]], 0)


def _scalar(key: Any) -> Any:
    if not isinstance(key, _SCALARS):
        raise TypeError
    return key


_STEPS: Final[dict[int, Callable[[PickleMachine], None]]] = {
    0x80: PickleMachine.protocol,
    0x95: PickleMachine.frame,
    ord("("): PickleMachine.mark,
    ord("0"): PickleMachine.drop,
    ord("N"): PickleMachine.none,
    0x88: PickleMachine.true,
    0x89: PickleMachine.false,
    ord("M"): PickleMachine.two_bytes,
    ord("J"): PickleMachine.four_bytes,
    0x8A: PickleMachine.long,
    ord("G"): PickleMachine.float,
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
    ord("t"): PickleMachine.all_since_mark,
    ord("a"): PickleMachine.append,
    ord("e"): PickleMachine.appends,
    ord("s"): PickleMachine.set_item,
    ord("u"): PickleMachine.set_items,
    0x90: PickleMachine.add_items,
    ord("q"): lambda machine: machine.put(1),
    ord("r"): lambda machine: machine.put(4),
}
