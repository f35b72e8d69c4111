"""The largest culprit of a cause, in words, for the verdict on a step."""

from typing import Final

import msgspec

from gpuprof.roofline.analysis import Bottleneck
from gpuprof.roofline.classes import UNEXPLAINED
from gpuprof.roofline.durations import duration
from gpuprof.roofline.idle_figures import IdleCause, IdleCulprit, IdleTime

FIRST_STEPS: Final = (
    "only the program's first steps were profiled, which may do what later ones do not: let it run "
    "longer, or with --warmup 3"
)
# Of a cause: a narrower range is not worth a word.
_CLOSE: Final = 0.3


def with_culprit(verdict: Bottleneck, idle: IdleTime | None) -> Bottleneck:
    """`verdict` with what costs most of it, where it is a cause of `idle`."""
    if idle is None:
        return verdict
    if verdict.kind == UNEXPLAINED and idle.first_steps:
        return msgspec.structs.replace(verdict, evidence=f"{verdict.evidence}; {FIRST_STEPS}")
    causes = [cause for cause in idle.causes if cause.kind == verdict.kind and cause.culprits]
    if not causes:
        return verdict
    worst = causes[0].culprits[0]
    said = f"{duration(worst.nanoseconds)} of it: {culprit_text(worst)}"
    if idle.basis != "whole trace" and worst.calls_per_step is not None:
        said += f", {count_text(worst.calls_per_step)} a step"
    if worst.detail:
        said += f" ({worst.detail})"
    return msgspec.structs.replace(
        verdict, evidence=f"{verdict.evidence}{_range(causes[0], idle)}; {said}"
    )


def _range(cause: IdleCause, idle: IdleTime) -> str:
    """Within which it lies, where profiled and timed steps leave that open."""
    if idle.basis != "timed" or cause.least_ns is None or cause.most_ns is None:
        return ""
    if cause.most_ns - cause.least_ns <= _CLOSE * cause.nanoseconds:
        return ""
    return (
        f"; {duration(cause.least_ns)} to {duration(cause.most_ns)}, as profiled steps waited for "
        f"{duration(idle.profiled_ns)} and timed ones for {duration(idle.nanoseconds)}"
    )


def culprit_text(culprit: IdleCulprit) -> str:
    """ ".item() (aten::_local_scalar_dense, cudaStreamSynchronize, train.py:42)"."""
    inside = [culprit.operator, culprit.call, culprit.place]
    known = ", ".join(part for part in inside if part and part != culprit.what)
    return f"{culprit.what} ({known})" if known else culprit.what


def count_text(calls: float | None) -> str:
    """A mean number of calls, whole where it is; "" where it is not known."""
    if calls is None:
        return ""
    return f"{calls:.0f}" if calls == round(calls) or calls >= 100 else f"{calls:.3g}"
