"""Which lines of the program changed: the device work and the waiting of each, before and after.

A change to a program moves its lines. In each function, the lines that call something are aligned
by what they call, so that a line inserted above is no change of those below.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

import msgspec

from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.classes import ClassName
from gpuprof.roofline.module_figures import SourceLine

# Of waiting: what may be missing on the side that does not list a line, and still tells.
_NEARLY_NOTHING = 0.1
_MOST_NAMED = 8


class LineChange(msgspec.Struct, frozen=True, kw_only=True):
    """What one line of the program costs in one step, in nanoseconds.

    The changes of device work add up to that of all device work.
    """

    # "train.py:42"; "" where a side does not have it. Both are "" for work whose line is unknown.
    base: str
    head: str
    # The function around it; "" where unknown.
    function: str
    # What it calls and in which modules: those with most time first, eight at most.
    operators: tuple[str, ...]
    modules: tuple[str, ...]
    # Device work that it calls, also where other work hides it.
    base_ns: float
    head_ns: float
    # Without device work, because of what it does. None where a side lists only its longest and
    # this is not among them.
    base_waiting_ns: float | None
    head_waiting_ns: float | None
    # The class of most of it; None where there is none.
    waiting_kind: ClassName | None = None

    @property
    def change_ns(self) -> float:
        """Head minus base, of device work."""
        return self.head_ns - self.base_ns

    @property
    def waiting_change_ns(self) -> float | None:
        """Head minus base, of waiting."""
        if self.base_waiting_ns is None or self.head_waiting_ns is None:
            return None
        return self.head_waiting_ns - self.base_waiting_ns


@dataclass
class _Line:
    """One line of one side; `place` is its text. Times are of one step."""

    place: str
    source: SourceLine | None
    operators: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    modules: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    device_ns: float = 0.0
    waits: defaultdict[ClassName, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def waiting_ns(self) -> float:
        return sum(self.waits.values())

    @property
    def calls(self) -> Hashable:
        """What two lines have in common that are the same."""
        return frozenset(self.operators), frozenset(self.modules)


_Pair = tuple[_Line, _Line]
_Key = Callable[[_Line], Hashable]


def line_changes(base: Analysis, head: Analysis, *, same_steps: bool) -> tuple[LineChange, ...]:
    """The lines of both sides, the largest changes first.

    `same_steps`: the splits of both sides are of steps of one kind, so that waiting is that of
    these; else it is that of profiled steps. Empty where a side does not know its lines.
    """
    if base.modules is None or head.modules is None:
        return ()
    left = _lines(base, same_steps=same_steps)
    right = _lines(head, same_steps=same_steps)
    pairs = _matched(left, right, base.title, head.title)
    before, after = {id(one) for one, _ in pairs}, {id(other) for _, other in pairs}
    hidden = _unlisted_ns(base, same_steps=same_steps), _unlisted_ns(head, same_steps=same_steps)
    found = [
        *(_change(one, other, hidden) for one, other in pairs),
        *(_change(one, None, hidden) for one in left if id(one) not in before),
        *(_change(None, other, hidden) for other in right if id(other) not in after),
    ]
    return tuple(sorted(found, key=lambda one: (-_size(one), one.head, one.base)))


def _size(change: LineChange) -> float:
    return max(abs(change.change_ns), abs(change.waiting_change_ns or 0.0))


def _lines(analysis: Analysis, *, same_steps: bool) -> list[_Line]:
    """The lines of one side, in the order of the program."""
    assert analysis.modules is not None
    steps = max(analysis.steps.profiled, 1)
    found: dict[str, _Line] = {}
    for row in analysis.modules.rows:
        for each in row.operators:
            place = "" if each.source is None else each.source.text
            line = found.setdefault(place, _Line(place, each.source))
            line.operators[each.name] += each.device_ns / steps
            line.modules[row.path] += each.device_ns / steps
            line.device_ns += each.device_ns / steps
    for cause in () if analysis.idle is None else analysis.idle.causes:
        for one in cause.culprits:
            if one.place:
                line = found.setdefault(one.place, _Line(one.place, None))
                line.waits[cause.kind] += one.nanoseconds if same_steps else one.profiled_ns
    return sorted(found.values(), key=lambda line: _file_and_line(line.place))


def _file_and_line(place: str) -> tuple[str, int]:
    file, _, number = place.rpartition(":")
    return (file, int(number)) if number.isdecimal() else (place, 0)


def _unlisted_ns(analysis: Analysis, *, same_steps: bool) -> float:
    """What a line may wait for at most that is not among those listed."""
    largest = 0.0
    for cause in () if analysis.idle is None else analysis.idle.causes:
        if not cause.others:
            continue
        listed = [one.nanoseconds if same_steps else one.profiled_ns for one in cause.culprits]
        # One that is left out is no longer than the shortest that is listed.
        largest += min([*listed, cause.others_ns] if same_steps else listed, default=0)
    return largest


def _matched(
    left: Sequence[_Line], right: Sequence[_Line], base_title: str, head_title: str
) -> list[_Pair]:
    """Which line of the head is which of the base."""

    def function(title: str) -> _Key:
        def key(line: _Line) -> Hashable:
            if line.source is None:
                return None
            file = line.source.file
            # The program's own file, whatever it is called.
            return "" if file.rpartition("/")[2] == title else file, line.source.function

        return key

    pairs = _aligned(left, right, function(base_title), function(head_title), changed=True)
    ones, others = _rest(left, right, pairs)
    # Of functions that moved to another file.
    names: _Key = lambda line: None if line.source is None else line.source.function  # noqa: E731
    pairs += _aligned(ones, others, names, names, changed=False)
    ones, others = _rest(left, right, pairs)
    # Lines that only wait, and the work without a line.
    moved = {_moved(one.place, pairs): one for one in ones}
    pairs += [(moved[other.place], other) for other in others if other.place in moved]
    return pairs


def _rest(
    left: Iterable[_Line], right: Iterable[_Line], pairs: Iterable[_Pair]
) -> tuple[list[_Line], list[_Line]]:
    taken = {id(line) for pair in pairs for line in pair}
    return (
        [line for line in left if id(line) not in taken],
        [line for line in right if id(line) not in taken],
    )


def _aligned(
    left: Iterable[_Line], right: Iterable[_Line], key: _Key, other_key: _Key, *, changed: bool
) -> list[_Pair]:
    """Pairs of lines within groups of one key, by what they call, in their order.

    With `changed` as many lines in the place of as many others are the same, with other calls.
    """
    before, after = _grouped(left, key), _grouped(right, other_key)
    pairs: list[_Pair] = []
    for group in before.keys() & after.keys():
        ones, others = before[group], after[group]
        matcher = SequenceMatcher(
            None, [one.calls for one in ones], [other.calls for other in others], autojunk=False
        )
        for tag, start, end, other_start, other_end in matcher.get_opcodes():
            as_many = changed and tag == "replace" and end - start == other_end - other_start
            if tag == "equal" or as_many:
                pairs += zip(ones[start:end], others[other_start:other_end], strict=True)
    return pairs


def _grouped(lines: Iterable[_Line], key: _Key) -> Mapping[Hashable, list[_Line]]:
    groups: defaultdict[Hashable, list[_Line]] = defaultdict(list)
    for line in lines:
        if (value := key(line)) is not None:
            groups[value].append(line)
    return groups


def _moved(place: str, pairs: Iterable[_Pair]) -> str:
    """Where a line of the base is in the head: as far away as the nearest one that is known."""
    file, number = _file_and_line(place)
    known = []
    for one, other in pairs:
        (one_file, one_number), (other_file, other_number) = (
            _file_and_line(line.place) for line in (one, other)
        )
        if one_file == file and one_number and other_number:
            known.append((abs(one_number - number), other_file, other_number - one_number))
    if not number or not known:
        return place
    _, file, shift = min(known)
    return f"{file}:{number + shift}"


def _change(one: _Line | None, other: _Line | None, unlisted: tuple[float, float]) -> LineChange:
    line = other or one
    assert line is not None
    waits = [None if side is None else side.waiting_ns for side in (one, other)]
    waiting = [
        _waiting_ns(own, opposite, may_be_ns)
        for own, opposite, may_be_ns in zip(waits, reversed(waits), unlisted, strict=True)
    ]
    return LineChange(
        base="" if one is None else one.place,
        head="" if other is None else other.place,
        function="" if line.source is None else line.source.function,
        operators=_by_time(line.operators),
        modules=_by_time(line.modules),
        base_ns=0.0 if one is None else one.device_ns,
        head_ns=0.0 if other is None else other.device_ns,
        base_waiting_ns=waiting[0],
        head_waiting_ns=waiting[1],
        waiting_kind=_longest_wait(one, other),
    )


def _waiting_ns(own: float | None, opposite: float | None, may_be_ns: float) -> float | None:
    """What a line waits for; where it is not listed, 0 if what may be missing would not tell."""
    if own:
        return own
    return 0.0 if may_be_ns <= _NEARLY_NOTHING * (opposite or 0.0) or not opposite else None


def _longest_wait(*sides: _Line | None) -> ClassName | None:
    waits = [(ns, kind) for side in sides if side is not None for kind, ns in side.waits.items()]
    return max(waits)[1] if any(ns for ns, _ in waits) else None


def _by_time(times: Mapping[str, float]) -> tuple[str, ...]:
    named = sorted((name for name in times if name), key=lambda name: -times[name])
    return tuple(named[:_MOST_NAMED])
