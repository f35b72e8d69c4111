"""What device work could gain: operators that stay below what good kernels of their kind reach."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gpuprof.roofline.advice.candidate import Candidate, Gain, line_text
from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.classes import (
    CLOCK,
    COMPUTE,
    FEW_BLOCKS,
    MEMORY,
    NO_TENSOR,
    SMALL,
    TAIL,
    ClassName,
)
from gpuprof.roofline.cost_models.cost import UNCOUNTED
from gpuprof.roofline.machine.achievable import Achievable, achievable
from gpuprof.roofline.machine.ceilings import Roof
from gpuprof.roofline.points.classify import WorkKey
from gpuprof.roofline.points.tensor_path import is_misaligned
from gpuprof.roofline.totals.work_kinds import CONVOLUTION, GEMM, kind_of_operator
from gpuprof.roofline.work.work import Signature, Work

# What work reaches varies by so much with its shape, and a gain within that is none.
_SHAPES_DIFFER: Final = 0.9
# Blocks of equal work on all multiprocessors share caches and memory, which costs some of it.
_SHARING: Final = 0.8
# Of what products reach: aligned ones of any size that fills the device reach more.
_MISALIGNED_BELOW: Final = 0.5
# Kinds of work whose operators are one kernel, and what the names of fused optimizers have.
_ONE_KERNEL: Final = ("attention", "norm")
_FUSED: Final = "_fused_"
_AS_FOUND: Final[Mapping[ClassName, str]] = {
    FEW_BLOCKS: "few-blocks",
    TAIL: "tail",
    SMALL: "small calls",
    CLOCK: "clock",
}


def below_the_roof(
    work: Work,
    points: Iterable[tuple[WorkKey, RooflinePoint]],
    roof: Roof | None,
    *,
    by_heuristic: bool,
) -> Iterator[Candidate]:
    """Candidates among the operators' `points`, which are sums over the steps of `work`.

    `by_heuristic`: cuDNN was seen to choose algorithms by one, and not by trying them.
    """
    if roof is None:
        return
    for key, point in points:
        signature = None if key[0] is None else work.signatures[key[0]]
        found = _found(point, signature, roof, work.steps, by_heuristic=by_heuristic)
        if found is not None:
            finding, gain = found
            yield Candidate(
                finding=finding,
                what=point.name,
                gain=gain,
                evidence=point.bottleneck.evidence,
                place=line_text(point.source),
                module=point.module,
                covers=frozenset([key]),
            )


def _found(
    point: RooflinePoint,
    signature: Signature | None,
    roof: Roof,
    steps: int,
    *,
    by_heuristic: bool,
) -> tuple[str, Gain] | None:
    kind, gain_ns = point.bottleneck.kind, point.bottleneck.gain_ns
    if point.roof_ns is None or gain_ns is None or point.transfer is not None:
        return None
    if kind in _AS_FOUND:
        most_ns = max(0, point.device_ns - point.roof_ns) // steps
        least_ns = round(gain_ns * _SHARING)
        return _AS_FOUND[kind], Gain(gain_ns, least_ns, max(gain_ns, most_ns))
    if kind == NO_TENSOR:
        return _without_tensor_cores(point, signature, roof, steps)
    ceiling = next((each for each in roof.ceilings if each.label == point.roof), None)
    if kind not in (COMPUTE, MEMORY) or ceiling is None:
        return None
    work_kind = kind_of_operator(point.name)
    reach = achievable(ceiling, work_kind)
    if reach is None:
        return None
    gain = _to_reach(point.device_ns, point.roof_ns, reach, steps)
    if kind == MEMORY:
        # Of what is one kernel already nothing is known that a program could change, nor of what
        # may take its time for work that its roof leaves out.
        uncounted = not UNCOUNTED.isdisjoint(point.assumptions)
        unknown = uncounted or _is_one_kernel(point.name, work_kind)
        return "below memory roof", Gain(0, 0, gain.most_ns) if unknown else gain
    # What is tried once is for shapes that each step has again.
    if by_heuristic and work_kind == CONVOLUTION and point.calls % steps == 0:
        return "convolution algorithm", gain
    below = point.roof_ns < _MISALIGNED_BELOW * reach.typical * point.device_ns
    of_tensor_cores = work_kind == GEMM and ceiling.unit == "tensor"
    call = None if signature is None else signature.call
    if below and of_tensor_cores and call is not None and is_misaligned(call):
        return "misaligned", gain
    return "below compute roof", gain


def _is_one_kernel(operator: str, work_kind: str) -> bool:
    """Whether it is the fused form of what programs also write out, and reads whole lines."""
    return work_kind in _ONE_KERNEL or _FUSED in operator


def _without_tensor_cores(
    point: RooflinePoint, signature: Signature | None, roof: Roof, steps: int
) -> tuple[str, Gain] | None:
    """Products whose gain assumes the same share of the tensor cores' roof: that roof is within."""
    assert point.roof_ns is not None
    assert point.bottleneck.gain_ns is not None
    float32 = any(part.kind == "matmul" and part.precision == "fp32" for part in point.flops or ())
    precisions = [part.precision for part in point.flops or () if part.kind == "matmul"]
    ceiling = roof.compute_rate("matmul", "tf32" if float32 else precisions[0])
    if ceiling is None:
        return None
    kept = 1 - point.bottleneck.gain_ns * steps / point.device_ns
    reach = achievable(ceiling, kind_of_operator(point.name)) or Achievable(1.0, 1.0)
    gain = _to_reach(point.device_ns, round(point.roof_ns * kept), reach, steps)
    return "TF32" if float32 else "no tensor cores", gain


def _to_reach(device_ns: int, roof_ns: int, reach: Achievable, steps: int) -> Gain:
    """The gain of work that took `device_ns` in all steps, if it came as near its roof."""
    shares = (reach.typical, reach.typical * _SHAPES_DIFFER, reach.best)
    return Gain(*(max(0, round((device_ns - roof_ns / share) / steps)) for share in shares))
