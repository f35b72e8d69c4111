"""The lines and modules that changed, in rows that every form of a comparison shows."""

from dataclasses import dataclass

from gpuprof.reports import formatting
from gpuprof.reports.comparison.amounts import before_after
from gpuprof.roofline.classes import bottleneck_class
from gpuprof.roofline.comparison.lines import LineChange
from gpuprof.roofline.comparison.modules import ModuleChange
from gpuprof.roofline.comparison.result import Comparison

# Of the step: less is in no row, as every line differs by a little from run to run.
_LEAST_SHARE = 0.001
_NO_LINE = "(line unknown)"
_NO_MODULE = "(no module)"


@dataclass(frozen=True)
class PlaceRow:
    """One line or module. Texts are printable."""

    # "train.py:42", "train.py:42 → train.py:45" where it moved.
    place: str
    # Its function, what it calls.
    subtitle: str
    # "", "new" or "gone".
    badge: str
    change_ns: float
    # Of a line its device work, of a module what it does itself.
    time: str
    # Of a line its waiting, of a module all with the modules in it; None where unknown.
    other_change_ns: float | None
    other_time: str


def line_rows(comparison: Comparison) -> tuple[PlaceRow, ...]:
    """The lines that changed by more than a thousandth of the step."""
    least_ns = _least_ns(comparison)
    return tuple(
        _line(line)
        for line in comparison.lines
        if max(abs(line.change_ns), abs(line.waiting_change_ns or 0.0)) > least_ns
    )


def module_rows(comparison: Comparison) -> tuple[PlaceRow, ...]:
    """The modules whose own work, or that of those in them, changed by so much."""
    least_ns = _least_ns(comparison)
    return tuple(
        _module(module)
        for module in comparison.modules
        if max(abs(module.own_change_ns), abs(module.change_ns)) > least_ns
    )


def _least_ns(comparison: Comparison) -> float:
    step = comparison.step
    return 0.0 if step is None else _LEAST_SHARE * step.lengths.base_ns


def _line(line: LineChange) -> PlaceRow:
    places = [formatting.printable(place) for place in (line.base, line.head)]
    known = [place for place in places if place]
    waits = (line.base_waiting_ns, line.head_waiting_ns)
    waited = "" if line.waiting_kind is None else bottleneck_class(line.waiting_kind).part
    return PlaceRow(
        place=" → ".join(dict.fromkeys(known)) or _NO_LINE,
        subtitle=formatting.printable(
            formatting.joined((line.function, ", ".join(line.operators), waited))
        ),
        badge=_badge(bool(line.base), bool(line.head)) if known else "",
        change_ns=line.change_ns,
        time=_times(
            None if known and not line.base else line.base_ns,
            None if known and not line.head else line.head_ns,
        ),
        other_change_ns=line.waiting_change_ns,
        other_time=_times(*waits) if any(waits) else "",
    )


def _module(module: ModuleChange) -> PlaceRow:
    return PlaceRow(
        place=formatting.printable(module.path) or _NO_MODULE,
        subtitle="",
        badge=_badge(module.base_ns is not None, module.head_ns is not None),
        change_ns=module.own_change_ns,
        time=_times(module.base_own_ns, module.head_own_ns),
        other_change_ns=module.change_ns,
        other_time=_times(module.base_ns, module.head_ns),
    )


def _badge(in_base: bool, in_head: bool) -> str:
    return {(True, False): "gone", (False, True): "new"}.get((in_base, in_head), "")


def _times(before_ns: float | None, after_ns: float | None) -> str:
    return before_after(formatting.duration(before_ns), formatting.duration(after_ns))
