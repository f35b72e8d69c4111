"""What exposed copies and communication could gain."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpuprof.roofline.advice.candidate import Candidate, Gain, line_text
from gpuprof.roofline.analysis import RooflinePoint, Transfer
from gpuprof.roofline.classes import COMMUNICATION, COPY
from gpuprof.roofline.durations import duration
from gpuprof.roofline.step_figures import Exposed, StepSplit, StepTimes
from gpuprof.roofline.work.call_runs import MANY
from gpuprof.roofline.work.work import Work

# Of what hiding it would gain, which asks for work that does not need it: one message that gains
# as much is the simpler change.
_AS_GOOD: Final = 0.8
# Of messages below it the start takes most: an all-reduce of 1 MiB over four H200 reaches a tenth
# of the bandwidth of 1 GiB. With those of other sizes they are as good as of one size.
_SMALL_BYTES: Final = 1 << 20
# The row of findings.toml that stands for calls that could be fewer.
MANY_MESSAGES: Final = "many messages"
_UNCERTAIN: Final = "nobody measured how much faster the ranks launch without the profiler"
# Of the link's datasheet: what copies of pinned memory reach (55 of 64 GB/s on an H200).
_PINNED_REACHES: Final = 0.86


@dataclass(frozen=True)
class CallWaits:
    """What is left, in a step without the profiler, of waiting in calls that follow others."""

    # As shares of a profiled step's: what there is room for, and what there is if launches got
    # faster as the whole step did.
    most: float = 1.0
    likely: float = 1.0


def call_waits(use: Exposed, split: StepSplit, times: StepTimes) -> CallWaits:
    """The shares for the step that `split` divides, of whose profiled steps `use` is one."""
    if not use.call_waits_ns:
        return CallWaits()
    moving_ns = use.communication_ns - (use.rank_waits_ns or 0)
    most = min(1.0, max(0, split.nanoseconds(COMMUNICATION) - moving_ns) / use.call_waits_ns)
    faster = 1.0
    if times.timed and times.median_ns and times.profiled_mean_ns:
        faster = times.median_ns / times.profiled_mean_ns
    return CallWaits(most, min(most, faster))


def exposed_links(
    work: Work,
    use: Exposed,
    transfers: Sequence[Transfer],
    points: Sequence[RooflinePoint],
    left: CallWaits,
    launches: Gain,
) -> Iterator[Candidate]:
    """Candidates of the device that the step waits for.

    `transfers`, and the operators' `points`, which tell where in the program they are, are sums
    over the steps of `work`. `launches` is what launching mergeable calls costs, of all of them.
    """
    could_be_fewer = _with_many_mergeable(transfers, work)
    mergeable = sum(each.mergeable_calls for each in could_be_fewer)
    for each in transfers:
        if each.kind == COPY and each.exposed_ns:
            yield _at_its_place(_copies(each, use, work), each, points)
        elif each.kind == COMMUNICATION and each.exposed_ns:
            waiting_ns = each.exposed_waiting_ns or 0
            moving_ns = max(0, each.exposed_ns - waiting_ns) // work.steps
            found = _communication(each, moving_ns, use, work)
            if each in could_be_fewer:
                own = launches.share(each.mergeable_calls / mergeable)
                found = _as_fewer(found, each, moving_ns, work, left, own)
            yield _at_its_place(found, each, points)


def _with_many_mergeable(transfers: Sequence[Transfer], work: Work) -> list[Transfer]:
    """The exposed ones that are worth to be fewer: many of one size, or small ones of any."""
    small: Counter[tuple[str, str | None]] = Counter()
    for each in filter(_is_small, transfers):
        small[each.what, each.group] += each.mergeable_calls
    found = []
    for each in transfers:
        alike = small[each.what, each.group] if _is_small(each) else each.mergeable_calls
        many = each.mergeable_calls and alike >= (MANY - 1) * work.steps
        if many and each.kind == COMMUNICATION and each.exposed_ns:
            found.append(each)
    return found


def _at_its_place(
    found: Candidate, transfer: Transfer, points: Sequence[RooflinePoint]
) -> Candidate:
    """`found` with the line that moves most of it."""
    alike = [point for point in points if _moves(point, transfer)]
    if not alike:
        return found
    most = max(alike, key=lambda point: point.device_ns)
    return replace(found, place=line_text(most.source), module=most.module)


def _moves(point: RooflinePoint, transfer: Transfer) -> bool:
    one = point.transfer
    return one is not None and (one.kind, one.what, one.host_memory, one.group) == (
        transfer.kind,
        transfer.what,
        transfer.host_memory,
        transfer.group,
    )


def _copies(each: Transfer, use: Exposed, work: Work) -> Candidate:
    steps = work.steps
    exposed_ns = each.exposed_ns // steps
    pageable = each.host_memory == "pageable"
    what = f"copies {each.what}".strip()
    needed_ns = exposed_ns
    if each.pinned_ns is not None:
        # As gpuprof calibrate measured it on this machine.
        needed_ns = min(exposed_ns, round(each.pinned_ns * each.calls / steps))
    elif pageable and each.roof_ns is not None:
        # The driver copies pageable memory twice, and a pinned copy is as fast as the link.
        needed_ns = min(exposed_ns, round(each.roof_ns / _PINNED_REACHES / steps))
    left_ns = max(0, needed_ns - _free_ns(each, use, steps))
    gain_ns = exposed_ns - left_ns
    least_ns = gain_ns - (needed_ns - left_ns) // 2
    return Candidate(
        finding="pageable copies" if pageable else "exposed copies",
        what=f"{what}, {each.host_memory}" if each.host_memory else what,
        gain=Gain(gain_ns, least_ns, exposed_ns),
        evidence=f"{duration(exposed_ns)} {work.per} copies while nothing computes",
    )


def _is_small(each: Transfer) -> bool:
    return each.message_bytes is not None and each.message_bytes < _SMALL_BYTES


def _communication(each: Transfer, exposed_ns: int, use: Exposed, work: Work) -> Candidate:
    steps, calls = work.steps, each.calls / work.steps
    what = each.what or "communication"
    if each.group_size:
        what = f"{what} of {each.group_size} ranks"
    gain = _hidden(exposed_ns, _free_ns(each, use, steps))
    several = "one call" if calls == 1 else f"{calls:.3g} calls"
    evidence = f"{duration(exposed_ns)} {work.per} in {several} is hidden by nothing"
    return Candidate("exposed communication", what, gain, evidence)


def _as_fewer(
    found: Candidate,
    each: Transfer,
    exposed_ns: int,
    work: Work,
    left: CallWaits,
    launches: Gain,
) -> Candidate:
    """`found` as calls that could be fewer, where that gains as much."""
    # As one message with the call before, each takes what its bytes need at the link's rate.
    share = each.mergeable_calls / each.calls
    together_ns = round(share * max(0, exposed_ns - (each.roof_ns or 0) / work.steps))
    waiting_ns = (each.call_waiting_ns or 0) / work.steps
    if together_ns + launches.ns < _AS_GOOD * found.gain.ns and not waiting_ns:
        return found
    merged = f"{each.mergeable_calls / work.steps:.3g}"
    evidence = f"{found.evidence}; {merged} of them need nothing of the call before"
    if waiting_ns:
        left_text = duration(round(waiting_ns * left.most))
        evidence += f", and {left_text} {work.per} goes by until all ranks have launched them"
    if launches.ns:
        until = duration(launches.ns)
        evidence += f", and the device has no work for {until} {work.per} until they are launched"
    waits = Gain(round(waiting_ns * left.likely), 0, round(waiting_ns * left.most))
    return replace(
        found,
        finding=MANY_MESSAGES,
        gain=Gain(together_ns, together_ns // 2, exposed_ns) + waits + launches,
        evidence=evidence,
        uncertain=_UNCERTAIN if waiting_ns or launches.ns else "",
        # A host that launches less needs less of the step itself.
        of_device=not launches.ns,
    )


def _free_ns(each: Transfer, use: Exposed, steps: int) -> int:
    """The computing of a step that does not hide some of the transfer already."""
    return max(0, use.computing_ns - (each.device_ns - each.exposed_ns) // steps)


def _hidden(exposed_ns: int, computing_ns: int) -> Gain:
    """What is gained where so much computing hides it too."""
    gain_ns = min(exposed_ns, computing_ns)
    return Gain(gain_ns, gain_ns // 2, exposed_ns)
