"""How the gain of a change is computed, as far as an analysis holds what it was computed from."""

from collections.abc import Sequence

from gpuprof.reports.computation import Computation
from gpuprof.reports.computed.formulas import computation, seconds
from gpuprof.reports.figures import line_text
from gpuprof.roofline.advice_figures import Advice
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.classes import OTHER_RANK, QUEUED, bottleneck_class
from gpuprof.roofline.machine.achievable import achievable
from gpuprof.roofline.totals.work_kinds import kind_of_operator

# Findings whose work is compared with what good kernels reach.
_OF_KERNELS = ("below compute roof", "below memory roof", "misaligned", "convolution algorithm")


def of_gain(advice: Advice, analysis: Analysis) -> Computation:
    """The formula whose inputs give this gain; its rule alone where none here does."""
    for found in (
        _of_waiting(advice, analysis),
        _of_kernels(advice, analysis),
        _of_late_rank(advice, analysis),
    ):
        if found is not None:
            return found
    places_ns = [place.gain_ns for place in advice.places]
    if len(places_ns) > 1 and not advice.other_places and sum(places_ns) == advice.gain_ns:
        return computation("gain of its places", g=[seconds(each) for each in places_ns])
    return computation("gain that is limited")


def _of_waiting(advice: Advice, analysis: Analysis) -> Computation | None:
    idle = analysis.idle
    if idle is None or not bottleneck_class(advice.kind).idle:
        return None
    cause = next((each for each in idle.causes if each.kind == advice.kind), None)
    if cause is None:
        return None
    queued_ns = sum(each.nanoseconds for each in idle.causes if each.kind == QUEUED)
    gain_ns = min(cause.nanoseconds + cause.hidden_ns, idle.nanoseconds - queued_ns)
    if gain_ns != advice.gain_ns:
        return None
    return computation(
        "gain of waiting less",
        w=seconds(cause.nanoseconds),
        h=seconds(cause.hidden_ns),
        I=seconds(idle.nanoseconds),
        q=seconds(queued_ns),
    )


def _of_kernels(advice: Advice, analysis: Analysis) -> Computation | None:
    if advice.finding not in _OF_KERNELS or advice.other_places:
        return None
    places = {(place.what, place.place, place.module) for place in advice.places}
    points = [
        point
        for point in analysis.ops
        if (point.name, line_text(point.source), point.module) in places
        and point.bottleneck.kind == advice.kind
    ]
    reached = _reached(points, analysis)
    if reached is None or not analysis.steps.profiled:
        return None
    steps = analysis.steps.profiled
    taken_ns = sum(point.device_ns for point in points) / steps
    roof_ns = sum(point.roof_ns or 0 for point in points) / steps
    # Each row of operators is rounded to a nanosecond.
    if abs(taken_ns - roof_ns / reached - advice.gain_ns) > len(points):
        return None
    return computation(
        "gain of a faster kernel", D=seconds(taken_ns), R=seconds(roof_ns), a=reached
    )


def _reached(points: Sequence[RooflinePoint], analysis: Analysis) -> float | None:
    """What good kernels of `points` reach of their ceiling, where that is one figure."""
    ceilings = {
        each.label: each for each in analysis.ceilings if each.source == analysis.roof_source
    }
    found = {
        None
        if point.roof not in ceilings
        else achievable(ceilings[point.roof], kind_of_operator(point.name))
        for point in points
    }
    reach = found.pop() if len(found) == 1 else None
    return None if reach is None else reach.typical


def _of_late_rank(advice: Advice, analysis: Analysis) -> Computation | None:
    ranks = analysis.ranks
    if advice.kind != OTHER_RANK or ranks is None:
        return None
    found = (
        late
        for late in ranks.stragglers
        if advice.gain_ns == min(late.beyond_next_ns, late.costs_at_most_ns)
    )
    late = next(found, None)
    if late is None:
        return None
    return computation(
        "gain of a late rank", b=seconds(late.beyond_next_ns), m=seconds(late.costs_at_most_ns)
    )
