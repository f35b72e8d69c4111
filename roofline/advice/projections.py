"""Products of one tensor with several weights, which could be one with the weights side by side.

Query, key and value of attention, or the two halves of a gated layer. As one product the tensor is
read once, the device is filled better, and the host launches once. Only where a capture tells that
the products take the same tensor (`multiplied` of its operators): sizes alone do not.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import polars as pl

from gpuprof.roofline.advice.candidate import Candidate, Gain, line_text
from gpuprof.roofline.advice.sizes import size_text
from gpuprof.roofline.cost_models.call import Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.durations import duration
from gpuprof.roofline.machine.achievable import achievable
from gpuprof.roofline.machine.ceilings import Ceiling, Roof
from gpuprof.roofline.points.classify import WorkKey
from gpuprof.roofline.totals.work_kinds import GEMM, kind_of_operator
from gpuprof.roofline.work.work import Signature, Work

_LEAST_PRODUCTS: Final = 2
# Of what is likely: a product of another width has another kernel.
_LEAST: Final = 0.5
_UNCERTAIN: Final = (
    "a product of another width runs in another kernel, which may come less near its roof"
)
# What is multiplied stands here in the calls that own such products.
_POSITIONS: Final = {"aten::mm": 0, "aten::addmm": 1}


@dataclass(frozen=True)
class _Product:
    """One call in one step."""

    key: WorkKey
    place: int
    duration_ns: int


@dataclass(frozen=True)
class _Limits:
    """How long work takes at the roof, by its operations and by its bytes."""

    compute: Ceiling
    memory: Ceiling

    def roof_ns(self, flops: int, moved_bytes: int) -> float:
        """Of one product."""
        return 1e9 * max(flops / self.compute.rate, moved_bytes / self.memory.rate)

    def typical(self, flops: int, moved_bytes: int) -> float:
        """The share of that which large products reach; 0.0 where nothing was measured."""
        by_compute = flops / self.compute.rate >= moved_bytes / self.memory.rate
        reach = achievable(self.compute if by_compute else self.memory, GEMM)
        return 0.0 if reach is None else reach.typical


def projections(work: Work, roof: Roof | None) -> Iterator[Candidate]:
    """A candidate for each set of products, with all its repetitions in the profiled steps.

    Of forward passes: going back, each has a gradient of its own to take. Without steps nothing
    tells a product that is repeated from another one.
    """
    known = work.kernels["multiplied"].is_not_null().any()
    if roof is None or work.whole_trace or not known:
        return
    found: defaultdict[tuple[int, tuple[WorkKey, ...]], list[int]] = defaultdict(list)
    for run in _runs(work):
        found[run[0].place, tuple(one.key for one in run)].append(
            sum(one.duration_ns for one in run)
        )
    # A product has its own speed, wherever it stands.
    mean_ns = _mean_ns(work)
    for (place_number, keys), durations_ns in found.items():
        candidate = _candidate(work, keys, durations_ns, mean_ns, roof)
        if candidate is not None:
            place = work.places.table[place_number]
            yield Candidate(
                finding="projections",
                what=_in_short(work, keys),
                gain=candidate[0],
                evidence=candidate[1],
                uncertain=_UNCERTAIN,
                place=line_text(place.source),
                module=place.module.rpartition(".")[0],
                covers=frozenset(keys),
            )


def _runs(work: Work) -> Iterator[Sequence[_Product]]:
    """Products of one tensor that no other product stands between."""
    calls = (
        work.kernels.filter(
            pl.col("replay").is_null()
            & pl.col("signature").is_not_null()
            & (pl.col("phase") != "backward")
            & ~pl.col("recompute").fill_null(value=False)
        )
        .group_by("step", "owner_id", maintain_order=True)
        .agg(
            pl.col("start_ns").min(),
            pl.col("duration_ns").sum(),
            *(pl.col(name).first() for name in ("multiplied", "signature", "place", "phase")),
        )
        .sort("step", "start_ns")
    )
    products = [
        row
        for row in calls.iter_rows(named=True)
        if kind_of_operator(work.signatures[row["signature"]].name) == GEMM
    ]
    for (_, tensor), run in groupby(products, lambda row: (row["step"], row["multiplied"])):
        found = [
            _Product((row["signature"], row["phase"], ""), row["place"], row["duration_ns"])
            for row in run
        ]
        if tensor is not None and len(found) >= _LEAST_PRODUCTS:
            yield found


def _mean_ns(work: Work) -> dict[WorkKey, float]:
    own = (
        work.kernels.filter(pl.col("signature").is_not_null())
        .group_by("signature", "phase")
        .agg(pl.col("duration_ns").sum(), calls=pl.col("owner_id").n_unique())
    )
    return {
        (signature, phase, ""): duration_ns / calls
        for signature, phase, duration_ns, calls in own.iter_rows()
    }


def _candidate(
    work: Work,
    keys: Sequence[WorkKey],
    durations_ns: Sequence[int],
    mean_ns: dict[WorkKey, float],
    roof: Roof,
) -> tuple[Gain, str] | None:
    """The gain in a step, and what shows it; None where it cannot be known.

    One product of all the weights comes as near its roof as the best of these, likely, and at the
    most as large products do. At the least half of what is likely is gained.
    """
    costs = [work.signatures[key[0]].cost for key in keys if key[0] is not None]
    tensor = _multiplied(work, keys[0])
    known = [_amounts(cost) for cost in costs]
    if tensor is None or tensor.bytes is None or None in known:
        return None
    amounts = [each for each in known if each is not None]
    limits = _limits(roof, (cost for cost in costs if cost is not None))
    if limits is None:
        return None
    saved_bytes = (len(keys) - 1) * tensor.bytes
    flops = sum(each[0] for each in amounts)
    moved = sum(each[1] for each in amounts) - saved_bytes
    together_ns = limits.roof_ns(flops, moved)
    shares = [limits.roof_ns(*each) / mean_ns[key] for each, key in zip(amounts, keys, strict=True)]
    total_ns = sum(durations_ns)
    calls = len(durations_ns)
    best = max(shares)
    likely_ns, most_ns = (
        max(0, round((total_ns - calls * together_ns / share) / work.steps))
        for share in (best, max(best, limits.typical(flops, moved)))
    )
    a_step = calls / work.steps
    # A launch for each product but the first.
    launches = (len(keys) - 1) * a_step
    evidence = (
        f"{len(keys)} products of one tensor of {size_text(tensor.bytes)} take "
        f"{duration(round(total_ns / work.steps))} {work.per}"
        f"{'' if a_step == 1 else f' in {a_step:.3g} places'}; one reads it once, "
        f"{size_text(round(saved_bytes * a_step))} less, with {launches:.3g} launches less"
    )
    return Gain(likely_ns, round(likely_ns * _LEAST), most_ns), evidence


def _multiplied(work: Work, key: WorkKey) -> Tensor | None:
    signature = None if key[0] is None else work.signatures[key[0]]
    if signature is None or signature.call is None or signature.name not in _POSITIONS:
        return None
    return signature.call.tensor(_POSITIONS[signature.name])


def _amounts(cost: Cost | None) -> tuple[int, int] | None:
    """Operations of a product and the bytes that it moves; None where either is unknown."""
    if cost is None:
        return None
    flops, moved = cost.matmul_flops(), cost.bytes_moved()
    return None if not flops or moved is None else (flops, moved)


def _limits(roof: Roof, costs: Iterable[Cost]) -> _Limits | None:
    """None where the products are of several precisions, or one has no ceiling."""
    precisions = {
        part.precision for cost in costs for part in cost.flops or () if part.kind == "matmul"
    }
    if len(precisions) != 1:
        return None
    compute, memory = roof.compute_rate("matmul", precisions.pop()), roof.memory_rate()
    return None if compute is None or memory is None else _Limits(compute, memory)


def _in_short(work: Work, keys: Sequence[WorkKey]) -> str:
    """The products as rows x inner x columns: equal ones once, with their number."""
    named = Counter(_sizes(work.signatures[key[0]]) for key in keys if key[0] is not None)
    return ", ".join(name + (f" x{count}" if count > 1 else "") for name, count in named.items())


def _sizes(signature: Signature) -> str:
    name = signature.name.removeprefix("aten::")
    product = None if signature.cost is None else signature.cost.product
    return name if product is None else f"{name} {product.rows}x{product.inner}x{product.columns}"
