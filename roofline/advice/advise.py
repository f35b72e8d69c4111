"""All that a program can be advised to change, most gain first."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from typing import Final

from gpuprof.roofline.advice.candidate import Candidate, Gain
from gpuprof.roofline.advice.findings import Finding, findings
from gpuprof.roofline.advice_figures import Advice, AdvicePlace
from gpuprof.roofline.classes import ClassName
from gpuprof.roofline.durations import duration
from gpuprof.roofline.points.classify import WorkKey
from gpuprof.roofline.step_figures import StepTimes

# Of the step: what is gained at least, or half of what is likely, must be more, and more than the
# median of so many steps is off.
_NOISE: Final = 0.03
# However much steps differ, what more than this of a step goes to is worth a look.
_LARGE: Final = 0.1
# A host that takes no longer than this share of a step is not held up in it.
_HOST_IS_AHEAD: Final = 0.9
_SHOWN_PLACES: Final = 5


def advise(candidates: Iterable[Candidate], times: StepTimes, step_ns: int) -> tuple[Advice, ...]:
    """Changes whose gain is above the noise, of a step that takes `step_ns`."""
    limits = _limits_ns(times, step_ns)
    noise_ns = max(_NOISE, min(_LARGE, _median_is_off(times))) * step_ns
    groups = sorted(
        _grouped(_without_overlap(list(candidates))),
        # Of two that could save the whole step, the one that more of the work is about.
        key=lambda group: -sum(each.gain.ns for each in group[1]),
    )
    found = [
        _advice(findings()[name], group, limits[group[0].of_device], step_ns)
        for name, group in groups
    ]
    worth = [
        advice for advice in found if max(advice.gain_range_ns[0], advice.gain_ns // 2) > noise_ns
    ]
    return tuple(sorted(worth, key=lambda advice: -advice.gain_ns))


def _median_is_off(times: StepTimes) -> float:
    """The standard error of the timed steps' median: about their interquartile range over root n.

    Of a normal distribution 1.25 sd / sqrt(n), with 1.35 sd in that range.
    """
    if not times.timed or times.relative_spread is None:
        return 0.0
    return times.relative_spread / math.sqrt(times.timed)


def gain_of_class(
    candidates: Iterable[Candidate], kind: ClassName, times: StepTimes, step_ns: int
) -> Gain | None:
    """What all that makes work of one bottleneck class faster would gain; None: nothing known."""
    limits = _limits_ns(times, step_ns)
    of_class = [
        each
        for each in candidates
        if findings()[each.finding].kind == kind and not findings()[each.finding].removes
    ]
    if not of_class:
        return None
    gains = {True: Gain(0, 0, 0), False: Gain(0, 0, 0)}
    for each in _without_overlap(of_class):
        gains[each.of_device] += each.gain
    limited = [gain.at_most(limits[of_device]) for of_device, gain in gains.items()]
    return reduce(add, limited).at_most(step_ns)


def _limits_ns(times: StepTimes, step_ns: int) -> dict[bool, int]:
    """What a change can gain at most, by whether it is of device work.

    Where the host was seen to need less than a step, a faster device only helps until it waits for
    the host. Where it needs as much it may wait for the device, and nothing is known.
    """
    host_ns = times.host_median_ns
    ahead = times.timed and host_ns is not None and host_ns < _HOST_IS_AHEAD * step_ns
    return {True: step_ns - host_ns if ahead and host_ns is not None else step_ns, False: step_ns}


def _without_overlap(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Of different changes to the same work only the one that gains more."""
    kept: list[Candidate] = []
    taken: dict[WorkKey, str] = {}
    for each in sorted(candidates, key=lambda one: -one.gain.ns):
        if all(taken.get(key, each.finding) == each.finding for key in each.covers):
            kept.append(each)
            taken.update(dict.fromkeys(each.covers, each.finding))
    return kept


def _grouped(candidates: Iterable[Candidate]) -> Iterable[tuple[str, list[Candidate]]]:
    """Those that are one change, most gain first, and what has no name last."""
    groups: defaultdict[tuple[str, str], list[Candidate]] = defaultdict(list)
    for each in candidates:
        apart = "" if findings()[each.finding].together else each.place or each.what
        groups[each.finding, apart].append(each)
    for (name, _), group in groups.items():
        yield name, sorted(group, key=lambda one: (not one.what, -one.gain.ns))


def _advice(finding: Finding, group: Sequence[Candidate], limit_ns: int, step_ns: int) -> Advice:
    all_of_it = reduce(add, (each.gain for each in group))
    gain = all_of_it.at_most(limit_ns)
    assumption = finding.assumption
    if gain.ns < all_of_it.ns and limit_ns < step_ns:
        assumption += f"; no more than {duration(limit_ns)}, since the host needs the rest itself"
    places = _places(group)
    others = len({each.evidence for each in group if each.what}) - 1
    more = f"; {others} more like it" if others > 0 else ""
    return Advice(
        finding=finding.name,
        kind=finding.kind,
        change=finding.change,
        evidence=group[0].evidence + more,
        assumption=assumption,
        gain_ns=gain.ns,
        gain_range_ns=(gain.least_ns, gain.most_ns),
        uncertain=group[0].uncertain,
        places=places[:_SHOWN_PLACES],
        other_places=max(0, len(places) - _SHOWN_PLACES),
    )


def _places(group: Sequence[Candidate]) -> tuple[AdvicePlace, ...]:
    """What a change is about, each once, most gain first."""
    gains_ns: Counter[tuple[str, str, str]] = Counter()
    for each in filter(lambda one: one.what, group):
        gains_ns[each.what, each.place, each.module] += each.gain.ns
    return tuple(
        AdvicePlace(what=what, place=place, module=module, gain_ns=gain_ns)
        for (what, place, module), gain_ns in gains_ns.most_common()
    )
