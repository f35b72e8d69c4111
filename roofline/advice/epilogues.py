"""Operators right after a product, which could do them before it writes its result.

A matrix product or a convolution that also adds, scales or activates writes what the elementwise
operator would have written, and nobody reads its own result again. In inference the factors of a
batch norm go into the weights of the convolution before it, and nothing of it is left.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import NONE
from gpuprof.roofline.advice.candidate import Candidate, Gain, line_text
from gpuprof.roofline.advice.sequence import StreamOrder
from gpuprof.roofline.durations import duration
from gpuprof.roofline.points.classify import WorkKey
from gpuprof.roofline.totals.work_kinds import kind_of_operator
from gpuprof.roofline.work.work import Signature, Work

_PRODUCTS: Final = ("GEMM", "convolution")
# What epilogues of libraries do is less than what a compiler would: activations, a bias, a sum.
_LEAST: Final = 0.5
# Batch norms, and where they say whether they are those of training
# (pytorch aten/src/ATen/native/native_functions.yaml).
_BATCH_NORMS: Final = (
    "aten::native_batch_norm",
    "aten::cudnn_batch_norm",
    "aten::miopen_batch_norm",
)
_TRAINING_AT: Final = 5
_WITHOUT_TRAINING: Final = "aten::_native_batch_norm_legit_no_training"


class _Epilogue(NamedTuple):
    """A product with what follows it; the place is that of the first that does."""

    product: int
    keys: tuple[WorkKey, ...]
    place: int


def epilogues(work: Work, order: StreamOrder) -> Iterator[Candidate]:
    """A candidate for the operators that take a product's result as it is written.

    A trace does not tell which tensor an operator takes: it must follow the product on its stream,
    or what already follows it, and write as many bytes. `order` is that of `work`.
    """
    found: defaultdict[_Epilogue, list[int]] = defaultdict(list)
    for epilogue, durations_ns in _sequences(work, order):
        before_ns = found[epilogue] or [0] * len(durations_ns)
        found[epilogue] = [sum(each) for each in zip(before_ns, durations_ns, strict=True)]
    for epilogue, durations_ns in found.items():
        yield _candidate(work, epilogue, durations_ns)


def _sequences(work: Work, order: StreamOrder) -> Iterator[tuple[_Epilogue, list[int]]]:
    """Each product that something follows, with how long each of that takes."""
    known = order.kernels["signature"].cast(pl.Int64).fill_null(NONE)
    # What is of no operator stands in the last place.
    signature = known.to_numpy()
    lines = order.kernels["line"].to_numpy()
    each = [*work.signatures, None]
    kinds = ["" if one is None else _kind(one) for one in each]
    is_product = np.array([kind in _PRODUCTS for kind in kinds])
    elementwise = np.array([kind == "elementwise" for kind in kinds])
    into_weights = np.array([one is not None and _goes_into_weights(one) for one in each])
    written = [None if one is None else _written(one) for one in each]
    numbers = {size: number for number, size in enumerate(dict.fromkeys(written))}
    size = np.array([numbers[one] for one in written])
    # Each product whose next kernel on its line takes its result.
    before, after = signature[:-1], signature[1:]
    follows = (
        is_product[before]
        & (elementwise[after] | into_weights[after])
        & (size[before] == size[after])
        & (lines[:-1] == lines[1:])
    )
    # What more follows there.
    goes_on = elementwise[after] & (size[before] == size[after]) & (lines[:-1] == lines[1:])
    ends = np.append(np.flatnonzero(~goes_on) + 1, len(signature))
    begins = np.flatnonzero(follows)
    stops = ends[np.searchsorted(ends, begins + 2)]
    names, durations_ns, places = (
        order.kernels[name].to_list() for name in ("signature", "duration_ns", "place")
    )
    for begin, stop in zip(begins.tolist(), stops.tolist(), strict=True):
        phase = order.phase(int(lines[begin]))
        following = slice(begin + 1, stop)
        keys = tuple((name, phase, "") for name in names[following])
        yield _Epilogue(names[begin], keys, places[begin + 1]), durations_ns[following]


def _kind(signature: Signature) -> str:
    """Its kind of work; "" where it is compiled or what it writes is unknown."""
    return "" if _written(signature) is None else kind_of_operator(signature.name)


def _goes_into_weights(signature: Signature) -> bool:
    """Whether it is a batch norm with the statistics of earlier training."""
    if signature.name == _WITHOUT_TRAINING:
        return True
    call = signature.call
    return signature.name in _BATCH_NORMS and call is not None and call.flag(_TRAINING_AT) is False


def _written(signature: Signature) -> int | None:
    """What an operator that a library runs writes; None where that is unknown or compiled."""
    if signature.cost is None or signature.name.startswith("triton_"):
        return None
    return signature.cost.bytes_written


def _candidate(work: Work, epilogue: _Epilogue, durations_ns: Sequence[int]) -> Candidate:
    following = [work.signatures[key[0]] for key in epilogue.keys if key[0] is not None]
    saved_ns = sum(
        duration_ns * _saved_share(signature)
        for signature, duration_ns in zip(following, durations_ns, strict=True)
    )
    gain_ns = round(saved_ns / work.steps)
    place = work.places.table[epilogue.place]
    product, *others = (
        signature.name.removeprefix("aten::")
        for signature in (work.signatures[epilogue.product], *following)
    )
    take = "takes" if len(others) == 1 else "take"
    return Candidate(
        finding="epilogue",
        what=", ".join((product, *others)),
        gain=Gain(gain_ns, round(gain_ns * _LEAST), gain_ns),
        evidence=(
            f"{' and '.join(others)} {take} {duration(sum(durations_ns) // work.steps)} "
            f"{work.per} to read what {product} has just written, and write as much"
        ),
        place=line_text(place.source),
        module=place.module,
        covers=frozenset(epilogue.keys),
    )


def _saved_share(signature: Signature) -> float:
    """What of its time goes: all but what it reads beside the product's result.

    It reads that no more, and the product writes in its place. What else it reads the product has
    to.
    """
    assert signature.cost is not None
    read, written = signature.cost.bytes_read or 0, signature.cost.bytes_written or 0
    return min(1.0, 2 * written / (read + written)) if read + written else 0.0
