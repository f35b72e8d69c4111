"""What the host could do for a device that has no work."""

from collections.abc import Iterator
from typing import Final

from gpuprof.roofline.advice.candidate import Candidate, Gain
from gpuprof.roofline.advice.findings import findings
from gpuprof.roofline.classes import ClassName
from gpuprof.roofline.durations import duration
from gpuprof.roofline.idle_figures import IdleCause, IdleCulprit, IdleTime


def waiting(idle: IdleTime) -> Iterator[Candidate]:
    """A candidate for each culprit of a cause that something can be done about."""
    of_kind = _finding_of_kind()
    for cause in idle.causes:
        finding = of_kind.get(cause.kind)
        if finding is None:
            continue
        for culprit in cause.culprits:
            yield _candidate(finding, cause, culprit)
        if cause.others_ns:
            yield Candidate(
                finding=finding,
                what=f"{cause.others} others",
                gain=_gain(cause, cause.others_ns),
                evidence=f"{duration(cause.others_ns)} a step",
                of_device=False,
            )


_OF_DEVICE_WORK: Final = ("copy", "communication", "other rank")


def _finding_of_kind() -> dict[ClassName, str]:
    return {row.kind: row.name for row in findings().values() if row.kind not in _OF_DEVICE_WORK}


def _candidate(finding: str, cause: IdleCause, culprit: IdleCulprit) -> Candidate:
    calls = f"{culprit.calls_per_step:.3g}"
    often = "once a step" if calls == "1" else f"{calls} times a step"
    inside = f" in {culprit.operator}" if culprit.operator not in ("", culprit.what) else ""
    call = f" ({culprit.call}{inside})" if culprit.call else inside
    return Candidate(
        finding=finding,
        what=culprit.what,
        gain=_gain(cause, culprit.nanoseconds),
        evidence=(
            f"the device has no work for {duration(culprit.nanoseconds)} a step meanwhile{call}, "
            f"{often}"
        ),
        place=culprit.place,
        of_device=False,
    )


def _gain(cause: IdleCause, nanoseconds: int) -> Gain:
    """As sure as the length of its cause is."""
    if cause.nanoseconds == 0:
        return Gain(0, 0, 0)
    share = nanoseconds / cause.nanoseconds
    least_ns = cause.nanoseconds if cause.least_ns is None else cause.least_ns
    most_ns = cause.nanoseconds if cause.most_ns is None else cause.most_ns
    return Gain(nanoseconds, round(least_ns * share), max(nanoseconds, round(most_ns * share)))
