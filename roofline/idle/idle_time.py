"""Why the device has no work in a step: the causes in its own length, with what they come of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import polars as pl

from gpuprof.collectors import freed_memory
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.classes import OTHER_DEVICE, UNEXPLAINED, ClassName
from gpuprof.roofline.idle.culprits import (
    culprits,
    named_pieces,
    parts_of_steps,
    times_of_classes,
    usual_waiting_by_class,
    waiting_by_class,
)
from gpuprof.roofline.idle.host_time import HostTime, host_time
from gpuprof.roofline.idle.pieces import idle_pieces
from gpuprof.roofline.idle_figures import IdleCause, IdleCulprit, IdlePart, IdleTime
from gpuprof.roofline.step_figures import StepSplit
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.steps.waiting import (
    Factors,
    SeenWaiting,
    Waiting,
    WaitingPart,
    waiting_parts,
)
from gpuprof.roofline.work.work import Work

# Culprits that are named one by one.
_NAMED: Final = 8


@dataclass(frozen=True)
class IdleSeen:
    """What was seen of a profiled step's time without device work."""

    waiting: SeenWaiting
    # As `gpuprof.roofline.idle.culprits` gives them, and the pieces that they are found in.
    culprits: pl.DataFrame
    pieces: pl.DataFrame
    # Of each profiled step.
    steps: tuple[tuple[IdlePart, ...], ...]
    # What the host did beside launching, whether or not a device had work.
    host: HostTime
    # Whether those are the program's first steps, and timed ones came after them.
    first_steps: bool


def find_idle(
    capture: Capture, work: Work, stretch: Stretch | None, *, on_cpu: bool
) -> IdleSeen | None:
    """What the host of an attributed one-rank capture did while no device had work.

    None where no step was profiled.
    """
    if stretch is None or work.kernels.is_empty():
        return None
    # What was freed before stays with the C library otherwise, beside what is the peak here.
    freed_memory.give_back()
    idle = idle_pieces(capture, work, stretch, on_cpu=on_cpu)
    freed_memory.give_back()
    times = times_of_classes(idle.pieces)
    seen = waiting_by_class(times, stretch.steps)
    spent = host_time(capture, idle, on_cpu=on_cpu)
    named = named_pieces(idle, capture)
    first_steps = _profiled_before_timed(capture)
    # With the host's timeline; beside it what culprits are found with would be the peak.
    del idle
    freed_memory.give_back()
    return IdleSeen(
        SeenWaiting(
            seen,
            usual_waiting_by_class(times, stretch.steps),
            alone=first_steps and stretch.steps == 1,
            counted_ns=spent.counted,
            # A CPU's operators and all else follow each other on its threads.
            hidden_ns={
                kind: max(0.0, host_ns - seen.get(kind, Waiting()).total_ns)
                for kind, host_ns in spent.by_class.items()
                if not on_cpu
            },
        ),
        culprits(named, stretch.steps),
        named,
        parts_of_steps(times, stretch.steps),
        spent,
        first_steps=first_steps,
    )


def _profiled_before_timed(capture: Capture) -> bool:
    """Whether the profiled steps are the first look at a program that ended soon."""
    begins = {
        phase: capture.steps.filter(pl.col("phase") == phase)["start_ns"].min()
        for phase in ("profiled", "timed")
    }
    profiled, timed = begins["profiled"], begins["timed"]
    return isinstance(profiled, int) and isinstance(timed, int) and profiled < timed


def idle_time(seen: IdleSeen | None, split: StepSplit | None, *, on_cpu: bool) -> IdleTime | None:
    """`seen` in the step of `split`; None where there is no split."""
    if seen is None or split is None:
        return None
    idle_ns = split.idle_ns - split.nanoseconds(OTHER_DEVICE)
    scaled = waiting_parts(seen.waiting, idle_ns, step_ns=split.step_ns, basis=split.basis)
    by_class = seen.waiting.by_class
    factors = scaled.factors
    weights = seen.culprits.with_columns(
        weight=pl.col("keeps_ns") * factors.keeps + pl.col("shrinks_ns") * factors.shrinks,
        seen=pl.col("keeps_ns") + pl.col("shrinks_ns"),
    )
    causes = [
        msgspec.structs.replace(
            _cause(kind, part, by_class.get(kind, Waiting()), weights, on_cpu=on_cpu),
            **_of_the_host(kind, part, seen, split, scaled.factors),
        )
        for kind, part in scaled.parts.items()
    ]
    return IdleTime(
        nanoseconds=idle_ns,
        profiled_ns=round(sum(part.total_ns for part in by_class.values())),
        basis=split.basis,
        first_steps=seen.first_steps,
        causes=tuple(
            sorted(causes, key=lambda cause: (-cause.nanoseconds, -cause.profiled_ns, cause.kind))
        ),
        profiled_steps=seen.steps,
    )


def _of_the_host(
    kind: ClassName, part: WaitingPart, seen: IdleSeen, split: StepSplit, factors: Factors
) -> dict[str, int | None]:
    """What an `IdleCause` tells of the host's own time for it."""
    host_ns, counted_ns = seen.host.by_class.get(kind), seen.host.counted.get(kind)
    hidden_ns = 0.0
    # What waits for the device further on would then wait for as much longer.
    if not seen.host.waits - {kind} and not seen.waiting.alone:
        hidden_ns = factors.keeps * seen.waiting.hidden_ns.get(kind, 0.0)
        if split.basis == "timed" and counted_ns is not None:
            hidden_ns = max(0, counted_ns - part.nanoseconds)
    return {
        "counted_ns": counted_ns,
        "profiled_host_ns": None if host_ns is None else round(host_ns),
        "hidden_ns": round(min(hidden_ns, split.busy_ns)),
    }


def _cause(
    kind: ClassName, part: WaitingPart, seen: Waiting, weights: pl.DataFrame, *, on_cpu: bool
) -> IdleCause:
    own = weights.filter(pl.col("kind") == kind).sort(
        "weight", descending=True, maintain_order=True
    )
    whole = float(own["weight"].sum())
    found = [
        _culprit(row, row["weight"] / whole * part.nanoseconds if whole else 0.0)
        for row in own.iter_rows(named=True)
    ]
    if part.nanoseconds and not whole and kind != UNEXPLAINED:
        # Known by what was counted in timed steps, and not by what profiled ones did.
        known = IdleCulprit(
            what=kind, calls_per_step=None, nanoseconds=part.nanoseconds, profiled_ns=0
        )
        found = [known, *found]
    named, others = found[:_NAMED], found[_NAMED:]
    return IdleCause(
        kind=kind,
        nanoseconds=part.nanoseconds,
        least_ns=None if on_cpu else part.least_ns,
        most_ns=None if on_cpu else part.most_ns,
        profiled_ns=round(seen.total_ns),
        culprits=tuple(named),
        others=len(others),
        others_ns=sum(one.nanoseconds for one in others),
        mergeable_ns=sum(one.mergeable_ns for one in found),
    )


def _culprit(row: Mapping[str, Any], nanoseconds: float) -> IdleCulprit:
    return IdleCulprit(
        what=row["what"],
        call=row["call"],
        operator=row["operator"],
        kernel=row["kernel"],
        place=row["place"],
        detail=row["detail"],
        calls_per_step=row["calls"],
        nanoseconds=round(nanoseconds),
        profiled_ns=round(row["seen"]),
        mergeable_ns=round(nanoseconds * row["mergeable"]),
    )
