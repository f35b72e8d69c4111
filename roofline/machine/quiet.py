"""Whether a calibration was measured on a quiet machine, so that its figures are kept."""

from typing import Final

import msgspec

from gpuprof.collectors.manifest import Calibration

# A quiet machine's own services take a few percent.
BUSY: Final = 0.10
# A quiet machine's repeats agree within a few percent. Those of a link may differ: its rate is its
# fastest repeat, and so is a CPU's.
MAXIMUM_SPREAD: Final = 0.5


def why_not_kept(calibration: Calibration) -> str | None:
    """What makes the figures ones of a busy machine; None where nothing does."""
    others = calibration.other_work
    if others is not None and others > BUSY:
        return f"other programs used {others:.0%} of the device"
    if calibration.refused:
        return "too few repeats were undisturbed"
    spreads = [each.spread for each in calibration.ceilings if each.kind != "link"]
    if calibration.device.kind != "cpu" and max(spreads, default=0.0) > MAXIMUM_SPREAD:
        return f"a spread is over {MAXIMUM_SPREAD:.0%}"
    return None


def busy_sentences(calibration: Calibration) -> tuple[str, ...]:
    """What a reader of percentages must know of ceilings that a busy machine gave."""
    reason = why_not_kept(calibration)
    if reason is None:
        return ()
    if calibration.refused:
        names = ", ".join(calibration.refused)
        return (
            f"no ceiling for {names}: the machine was busy while they were measured ({reason}); "
            "gpuprof calibrate on a quiet machine has them",
        )
    return (
        f"the ceilings may be too low: {reason} while they were measured; "
        "gpuprof calibrate on a quiet machine replaces them",
    )


def with_higher_rates(calibration: Calibration, known: Calibration | None) -> Calibration:
    """`calibration` with those rates of `known` that are higher, each with its conditions.

    For a CPU only: what is measured there is the fastest repeat, which others make lower and
    nothing makes higher.
    """
    if known is None or calibration.device.kind != "cpu":
        return calibration
    before = {ceiling.name: ceiling for ceiling in known.ceilings}
    ceilings = tuple(
        max(ceiling, before.get(ceiling.name, ceiling), key=lambda each: each.rate)
        for ceiling in calibration.ceilings
    )
    return msgspec.structs.replace(calibration, ceilings=ceilings)
