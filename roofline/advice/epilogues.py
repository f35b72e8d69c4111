"""Elementwise operators right after a product, which could do them before it writes its result.

A matrix product or a convolution that also adds, scales or activates writes what the elementwise
operator would have written, and nobody reads its own result again.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from gpuprof.roofline.advice.candidate import Candidate, Gain, line_text
from gpuprof.roofline.advice.sequence import in_stream_order
from gpuprof.roofline.durations import duration
from gpuprof.roofline.points.classify import WorkKey
from gpuprof.roofline.totals.work_kinds import kind_of_operator
from gpuprof.roofline.work.work import Signature, Work

_PRODUCTS: Final = ("GEMM", "convolution")
# What epilogues of libraries do is less than what a compiler would: activations, a bias, a sum.
_LEAST: Final = 0.5


def epilogues(work: Work) -> Iterator[Candidate]:
    """A candidate for each elementwise operator that takes a product's result as it is written.

    A trace does not tell which tensor an operator takes: it must follow the product on its stream
    and write as many bytes.
    """
    kinds = [_kind(signature) for signature in work.signatures]
    found: Counter[tuple[int, WorkKey, int]] = Counter()
    line: tuple[object, ...] = ()
    product: int | None = None
    for kernel in in_stream_order(work):
        kind = "" if kernel.signature is None else kinds[kernel.signature]
        if product is not None and kernel.signature is not None and kernel.line == line:
            written = _written(work.signatures[kernel.signature])
            same = written is not None and written == _written(work.signatures[product])
            if kind == "elementwise" and same:
                found[product, kernel.key, kernel.place] += kernel.duration_ns
        line, product = kernel.line, kernel.signature if kind in _PRODUCTS else None
    for (product, key, place), total_ns in found.items():
        yield _candidate(work, work.signatures[product], key, place, total_ns)


def _kind(signature: Signature) -> str:
    compiled = signature.name.startswith("triton_")
    return "" if compiled or signature.cost is None else kind_of_operator(signature.name)


def _written(signature: Signature) -> int | None:
    return None if signature.cost is None else signature.cost.bytes_written


def _candidate(
    work: Work, product: Signature, key: WorkKey, place_number: int, total_ns: int
) -> Candidate:
    assert key[0] is not None
    signature = work.signatures[key[0]]
    assert signature.cost is not None
    read, written = signature.cost.bytes_read or 0, signature.cost.bytes_written or 0
    # It reads the product's result no more, and the product writes in its place. What else it reads
    # the product has to.
    share = min(1.0, 2 * written / (read + written)) if read + written else 0.0
    gain_ns = round(total_ns * share / work.steps)
    place = work.places.table[place_number]
    names = (product.name.removeprefix("aten::"), signature.name.removeprefix("aten::"))
    return Candidate(
        finding="epilogue",
        what=", ".join(names),
        gain=Gain(gain_ns, round(gain_ns * _LEAST), gain_ns),
        evidence=(
            f"{names[1]} takes {duration(total_ns // work.steps)} {work.per} to read what "
            f"{names[0]} has just written, and write as much"
        ),
        place=line_text(place.source),
        module=place.module,
        covers=frozenset([key]),
    )
