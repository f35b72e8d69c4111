"""What the host could do for a device that has no work."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Final

import msgspec

from gpuprof.collectors.manifest import Compilations
from gpuprof.collectors.place_text import place_text
from gpuprof.roofline.advice.candidate import Candidate, Gain
from gpuprof.roofline.advice.without_cause import Step
from gpuprof.roofline.classes import LAUNCH, ClassName
from gpuprof.roofline.durations import duration
from gpuprof.roofline.host_figures import HostFigures, LoaderCause, LoaderWait
from gpuprof.roofline.idle.evidence import count_text
from gpuprof.roofline.idle_figures import IdleCause, IdleCulprit
from gpuprof.roofline.step_figures import StepTimes

# What stands for a class of waiting, unless more is known of it.
_OF_CLASS: Final[Mapping[ClassName, str]] = {
    "launch": "launches",
    "synchronisation": "synchronisation",
    "data loader": "data loader",
    "blocking copy": "blocking copies",
    "allocator": "allocator",
    "compilation": "compilation",
    "garbage collection": "garbage collection",
    "host work": "host work",
}
_WAITING_WORKERS: Final[Mapping[LoaderCause, str]] = {
    "transform": "slow workers",
    "core": "slow workers",
    "reading": "slow storage",
    "waiting": "slow storage",
}


def launches_of_fewer(step: Step) -> Gain:
    """What is gained where no collective is launched that could be one with the call before."""
    found = [
        _share(step.gain_without(cause), cause, cause.mergeable_ns)
        for cause in step.idle.causes
        if cause.kind == LAUNCH
    ]
    return reduce(add, found, Gain(0, 0, 0))


def waiting(
    step: Step, host: HostFigures | None, *, replays: bool, fewer: bool = False
) -> Iterator[Candidate]:
    """A candidate for each culprit of a cause that something can be done about.

    `replays`: the program replays CUDA graphs, and need not be told of them. `fewer`: it is told to
    send fewer messages, and what `launches_of_fewer` gains is not gained here.
    """
    idle = step.idle
    for cause in idle.causes:
        finding = _OF_CLASS.get(cause.kind)
        if finding is None:
            continue
        more, left_ns = "", 0
        if host is not None and finding == "data loader":
            finding, more = _loader(host.loaders)
            left_ns = _computing_workers_ns(finding, host.loaders, step.times)
        elif host is not None and finding == "compilation":
            more = _guard(host.compilations)
        elif finding == "launches":
            yield from _graph_breaks(cause, None if host is None else host.compilations)
            finding = "launches beside graphs" if replays else finding
        gain = step.gain_without(cause, left_ns=left_ns)
        uncertain = step.why_uncertain(cause, gain)
        per = "in the trace" if idle.basis == "whole trace" else "a step"
        left = _without_mergeable(cause) if fewer and cause.kind == LAUNCH else cause
        for culprit in left.culprits:
            share = _share(gain, cause, culprit.nanoseconds)
            found = _candidate(_for(finding, culprit), culprit, share, more, per)
            yield replace(found, uncertain=uncertain)
        if left.others_ns:
            yield Candidate(
                finding=finding,
                what="",
                gain=_share(gain, cause, left.others_ns),
                uncertain=uncertain,
                evidence=(
                    f"the device has no work for {duration(left.others_ns)} {per} meanwhile, in "
                    f"{cause.others} kinds of call that cost little each"
                ),
                of_device=False,
            )


def _without_mergeable(cause: IdleCause) -> IdleCause:
    """What is left of the culprits of `cause` where collectives that could be one are one."""
    culprits = []
    for each in cause.culprits:
        left_ns = each.nanoseconds - each.mergeable_ns
        if left_ns:
            calls = each.calls_per_step
            calls = None if calls is None else calls * left_ns / each.nanoseconds
            left = msgspec.structs.replace(each, nanoseconds=left_ns, calls_per_step=calls)
            culprits.append(left)
    of_others_ns = cause.mergeable_ns - sum(each.mergeable_ns for each in cause.culprits)
    return msgspec.structs.replace(
        cause, culprits=tuple(culprits), others_ns=max(0, cause.others_ns - of_others_ns)
    )


def _for(finding: str, culprit: IdleCulprit) -> str:
    """`finding`, but of a library or driver that loads code or plans, and compiles nothing."""
    planned = culprit.what.startswith("aten::") or culprit.call != ""
    return "code loading" if finding == "compilation" and planned else finding


def _loader(loaders: Sequence[LoaderWait]) -> tuple[str, str]:
    """The finding about the loader that is waited for most, and what shows it."""
    if not loaders:
        return "data loader", ""
    most = loaders[0]
    if most.workers == 0:
        return "transform in line", "; it has no workers"
    workers = "its workers are" if most.workers is None else f"its {most.workers} workers are"
    workers = "its worker is" if most.workers == 1 else workers
    busy = {
        "transform": "computing",
        "core": "waiting for a core",
        "reading": "waiting for a storage device",
        "waiting": "waiting for something that is no storage device of this machine",
        "unknown": "loading",
    }[most.cause]
    return _WAITING_WORKERS.get(most.cause, "data loader"), f"; {workers} {busy}"


def _computing_workers_ns(finding: str, loaders: Sequence[LoaderWait], times: StepTimes) -> int:
    """What a step takes with faster storage: the workers that are waited for still compute.

    Each of them loads one of as many batches as they are, in as many steps.
    """
    most = loaders[0] if loaders else None
    if finding != "slow storage" or most is None or times.length_ns is None:
        return 0
    if not most.observed_ns or most.cpu_ns is None:
        return 0
    if most.loaded and most.workers and times.profiled:
        # As long as each takes for its share of the batches of a step.
        left_ns = most.cpu_ns / most.loaded / most.workers * most.batches / times.profiled
    else:
        # While workers are waited for they do not wait themselves, but for storage.
        left_ns = times.length_ns * most.cpu_ns / most.observed_ns
    return min(times.length_ns, round(left_ns))


def _guard(compilations: Compilations | None) -> str:
    """What made torch.compile compile again, most often."""
    if compilations is None or not compilations.recompilations:
        return ""
    most = compilations.recompilations[0]
    guard = f" since {most.guard} did not hold" if most.guard else ""
    return f"; {most.function} was compiled again {most.times} times{guard}"


def _graph_breaks(cause: IdleCause, compilations: Compilations | None) -> Iterator[Candidate]:
    """Places at which compiled code ends; how much of the waiting is theirs nobody measured."""
    if compilations is None or not compilations.breaks:
        return
    share_ns = cause.nanoseconds // len(compilations.breaks)
    for one in compilations.breaks:
        yield Candidate(
            finding="graph breaks",
            what=one.reason,
            # From nothing to all of it.
            gain=Gain(share_ns // 2, 0, share_ns),
            evidence=f"torch.compile left its graph {one.times} times: {one.reason}",
            uncertain="nobody measured how much of the waiting for launches the breaks cause",
            place=place_text(one.file, one.line),
            of_device=False,
        )


def _candidate(finding: str, culprit: IdleCulprit, gain: Gain, more: str, per: str) -> Candidate:
    often = ""
    if culprit.calls_per_step is not None:
        calls = count_text(culprit.calls_per_step)
        often = f", once {per}" if calls == "1" else f", {calls} times {per}"
    inside = f" in {culprit.operator}" if culprit.operator not in ("", culprit.what) else ""
    call = f" ({culprit.call}{inside})" if culprit.call else inside
    return Candidate(
        finding=finding,
        what=culprit.what,
        gain=gain,
        evidence=(
            f"the device has no work for {duration(culprit.nanoseconds)} {per} meanwhile{call}"
            f"{often}{more}"
        ),
        place=culprit.place,
        of_device=False,
    )


def _share(gain: Gain, cause: IdleCause, nanoseconds: int) -> Gain:
    """What of the `gain` without a cause is of so much of it."""
    if cause.nanoseconds == 0:
        return Gain(0, 0, 0)
    return gain.share(nanoseconds / cause.nanoseconds)
