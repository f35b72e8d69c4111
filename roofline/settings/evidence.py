"""Whether a capture shows that a setting costs: one function for each kind of evidence.

Each answers with a sentence that has the figures, and the most that the remedy could gain in a
step, or None where nothing speaks for it. Less than a fiftieth of a step is no evidence.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.classes import COMMUNICATION, NO_TENSOR
from gpuprof.roofline.durations import duration
from gpuprof.roofline.memory.driver_calls import driver_calls
from gpuprof.roofline.settings import health_evidence
from gpuprof.roofline.settings.known import CostEvidence, KnownOfStep
from gpuprof.roofline.steps.waiting_for_a_core import is_much

# Waiting for the host has other reasons too: as much as this needs none of them.
_MUCH_WAITING: Final = 0.1
# Products and convolutions at this share of their roof have little to gain from a choice.
_NEAR_ROOF: Final = 0.5
_CONVOLUTIONS: Final = ("convolution", "conv1d", "conv2d", "conv3d", "lstm", "gru", "_cudnn_rnn")
# PyTorch documentation, torch.use_deterministic_algorithms: operators with other kernels then, and
# the fills of new tensors (torch.utils.deterministic.fill_uninitialized_memory).
_CHANGED_BY_DETERMINISM: Final = (
    *("index_put", "index_add", "index_copy", "scatter", "gather", "put_", "cumsum", "histc"),
    *("bincount", "repeat_interleave", "embedding_dense_backward", "convolution_backward", "fill_"),
)


def find_evidence(kind: str, known: KnownOfStep) -> CostEvidence | None:
    """The evidence of one kind. Raises `KeyError` for a kind that is none."""
    return KINDS[kind](known)


def _always(known: KnownOfStep) -> CostEvidence:
    return CostEvidence("every time here is that of a program whose launches wait")


def _host(known: KnownOfStep) -> CostEvidence | None:
    split = known.split
    if split is None or not split.step_ns or split.idle_ns < _MUCH_WAITING * split.step_ns:
        return None
    return CostEvidence(
        f"{split.idle_ns / split.step_ns:.0%} of {split.whole} has no device work "
        f"({duration(split.idle_ns)})",
        split.idle_ns,
        "if nothing else keeps the device waiting",
    )


def _communication(known: KnownOfStep) -> CostEvidence | None:
    if known.exposed is None:
        return None
    # A rank that comes late is waited for however messages travel.
    waiting_ns = known.exposed.rank_waits_ns or 0
    moving_ns = known.exposed.communication_ns - waiting_ns
    if not known.counts(moving_ns):
        return None
    beside = ", beside waits for other ranks" if waiting_ns else ""
    return CostEvidence(
        f"{duration(moving_ns)} of {known.whole_profiled} is communication that nothing "
        f"hides{beside}",
        moving_ns,
        "if all of it were hidden or gone",
    )


def _host_and_communication(known: KnownOfStep) -> CostEvidence | None:
    communicates = any(transfer.kind == COMMUNICATION for transfer in known.transfers)
    return _host(known) if communicates else None


def _allocations(known: KnownOfStep) -> CostEvidence | None:
    asked = driver_calls(known.calls())
    spent_ns = int((asked["end_ns"] - asked["start_ns"]).sum()) // known.profiled
    if not known.counts(spent_ns):
        return None
    number = asked.height / known.profiled
    idle_ns = None if known.split is None else known.split.idle_ns
    return CostEvidence(
        f"{number:.3g} calls of {known.whole_profiled} ask the driver for memory or give it back: "
        f"{duration(spent_ns)} of the host's time",
        # The device waits for no more than it waits in all.
        spent_ns if idle_ns is None else min(spent_ns, idle_ns),
        "if the device waits for all of it",
    )


def _float32_products(known: KnownOfStep) -> CostEvidence | None:
    found = [
        point
        for point in known.ops
        if point.bottleneck.kind == NO_TENSOR and _matmul_precisions(point) == {"fp32"}
    ]
    return _of_points(
        found,
        known,
        what="products of float32 run without tensor cores",
        gain_ns=sum(point.bottleneck.gain_ns or 0 for point in found),
        assumption="in TF32 at the share of the roof that they reach now",
    )


def _convolutions(known: KnownOfStep) -> CostEvidence | None:
    found = [
        point
        for point in known.ops
        if any(name in point.name for name in _CONVOLUTIONS)
        and point.roof_fraction is not None
        and point.roof_fraction < _NEAR_ROOF
    ]
    below_ns = sum(point.device_ns - (point.roof_ns or 0) for point in found) // known.profiled
    return _of_points(
        found,
        known,
        what=f"convolutions run below {_NEAR_ROOF:.0%} of their roof",
        gain_ns=below_ns,
        assumption="if they reached their roof",
    )


def _deterministic(known: KnownOfStep) -> CostEvidence | None:
    found = [p for p in known.ops if any(name in p.name for name in _CHANGED_BY_DETERMINISM)]
    return _of_points(
        found,
        known,
        what="operators that have other kernels then, and fills of new tensors",
        gain_ns=sum(point.device_ns for point in found) // known.profiled,
        assumption="if they took no time",
    )


def _waiting_for_a_core(known: KnownOfStep) -> CostEvidence | None:
    fraction = known.times.waiting_fraction
    if fraction is None or not is_much(fraction) or known.times.host_median_ns is None:
        return None
    return CostEvidence(
        f"for {fraction:.0%} of the timed steps the stepping thread waited for a core",
        round(fraction * known.times.host_median_ns),
        "if it never waited; other programs may have had the core",
    )


def _of_points(
    points: Sequence[RooflinePoint],
    known: KnownOfStep,
    *,
    what: str,
    gain_ns: int | None,
    assumption: str,
) -> CostEvidence | None:
    spent_ns = sum(point.device_ns for point in points) // known.profiled
    worth_ns = spent_ns if gain_ns is None else gain_ns
    if not points or not known.step_ns or not known.counts(worth_ns):
        return None
    sentence = f"{what}: {spent_ns / known.step_ns:.0%} of {known.whole} ({duration(spent_ns)})"
    return CostEvidence(sentence, gain_ns, assumption)


def _matmul_precisions(point: RooflinePoint) -> set[str]:
    return {part.precision for part in point.flops or () if part.kind == "matmul"}


KINDS: Final[Mapping[str, Callable[[KnownOfStep], CostEvidence | None]]] = {
    "always": _always,
    "host": _host,
    "communication": _communication,
    "host and communication": _host_and_communication,
    "allocations": _allocations,
    "float32 products": _float32_products,
    "convolutions": _convolutions,
    "deterministic": _deterministic,
    "waiting for a core": _waiting_for_a_core,
    **health_evidence.KINDS,
}
