"""Operators that one kernel could do: each reads again what the one before it has just written.

A trace tells the order and the shapes of operators, not which tensor one takes. So a run is only
taken for a chain where its operators follow each other on one stream, and each has an operand of
the shape and size that the one before it wrote.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from gpuprof.roofline.advice.candidate import Candidate, Gain, line_text
from gpuprof.roofline.advice.sequence import StreamOrder
from gpuprof.roofline.advice.sizes import size_text
from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.durations import duration
from gpuprof.roofline.points.classify import WorkKey
from gpuprof.roofline.totals.work_kinds import kind_of_operator
from gpuprof.roofline.work.work import Signature, Work

# What compilers make one kernel of. A norm or a softmax may begin a chain or end it. Written out,
# both have reductions along their rows, which the kernel keeps.
_REDUCTION: Final = "reduction"
# Where mean, sum, amax and their like say along which axes (native_functions.yaml).
_AXES_AT: Final = 1
_FUSES: Final = ("elementwise", "norm", "softmax and loss", _REDUCTION)
_LEAST_OPERATORS: Final = 2
# A chain of so many takes up its own tensors again, as x * x * x does.
_LONG: Final = 4
# Operators of a chain that are named.
_NAMED: Final = 8


class _Run(NamedTuple):
    """Operators that follow each other, with the number of the place of the first."""

    place: int
    keys: tuple[WorkKey, ...]
    duration_ns: int


def fusions(work: Work, order: StreamOrder) -> Iterator[Candidate]:
    """A candidate for each chain of operators, with all its repetitions in the profiled steps.

    Work of compiled kernels and of replayed graphs is not looked at: its author chose it. `order`
    is that of `work`.
    """
    chains: dict[tuple[int, tuple[WorkKey, ...]], list[int]] = {}
    for run in _runs(work, order):
        chains.setdefault((run.place, run.keys), []).append(run.duration_ns)
    for (first, keys), durations_ns in chains.items():
        signatures = [work.signatures[index] for index, _, _ in keys if index is not None]
        found = _candidate(signatures, durations_ns, work)
        if found is not None:
            place = work.places.table[first]
            yield replace(
                found,
                place=line_text(place.source),
                module=place.module,
                covers=frozenset(keys),
            )


def _runs(work: Work, order: StreamOrder) -> Iterator[_Run]:
    """Chains on each stream, in the order of their kernels."""
    fusing = {
        index: shape
        for index, signature in enumerate(work.signatures)
        if (shape := _written(signature)) is not None
    }
    kernels = order.kernels.with_columns(
        fuses=pl.col("signature").is_in(list(fusing)).fill_null(False)
    )
    before = kernels.select("line", "signature", "owner", "fuses").shift(1)
    follows = (
        kernels["fuses"]
        & before["fuses"].fill_null(False)
        & (kernels["line"] == before["line"]).fill_null(False)
    )
    # Another kernel of the same call.
    continues = follows & (kernels["owner"] == before["owner"]).fill_null(False)
    pairs = pl.DataFrame({"one": before["signature"], "next": kernels["signature"]})
    taking = {
        (one, following)
        for one, following in pairs.filter(follows & ~continues).unique().iter_rows()
        if _takes(work.signatures[following], fusing[one])
    }
    takes = pairs.join(
        pl.DataFrame(sorted(taking), schema=pairs.schema, orient="row").with_columns(takes=True),
        on=("one", "next"),
        how="left",
        maintain_order="left",
    )["takes"].fill_null(False)
    begins = kernels["fuses"] & ~continues & ~(follows & takes)
    calls = (
        kernels.select(
            "fuses",
            *("signature", "line", "place", "duration_ns"),
            run=begins.cum_sum(),
            call=(~continues).cum_sum(),
        )
        .filter("fuses")
        .group_by("run", "call", maintain_order=True)
        .agg(pl.col("signature", "line", "place").first(), pl.col("duration_ns").sum())
        .filter(pl.len().over("run") >= _LEAST_OPERATORS)
    )
    if calls.is_empty():
        return
    signatures, lines = calls["signature"].to_list(), calls["line"].to_list()
    # One object for each key: calls by the ten thousand share a few.
    known: dict[tuple[int, int], WorkKey] = {}
    keys = [
        known.get(pair) or known.setdefault(pair, (pair[0], order.phase(pair[1]), ""))
        for pair in zip(signatures, lines, strict=True)
    ]
    runs = calls["run"].to_numpy()
    first = np.flatnonzero(np.append(True, runs[1:] != runs[:-1]))
    durations_ns = np.add.reduceat(calls["duration_ns"].to_numpy(), first)
    end = np.append(first[1:], len(runs))
    places = calls["place"].to_numpy()[first]
    for place, begin, stop, duration_ns in zip(
        places.tolist(), first.tolist(), end.tolist(), durations_ns.tolist(), strict=True
    ):
        yield _Run(place, tuple(keys[begin:stop]), duration_ns)


def _written(signature: Signature) -> tuple[int, ...] | None:
    """The shape that a fusable operator writes: that of its largest operand, or one value a row.

    A reduction along another axis, or of all, has to end before what takes its result begins.
    """
    if signature.cost is None or signature.name.startswith("triton_"):
        return None
    kind = kind_of_operator(signature.name)
    tensors = _tensors(signature)
    if kind not in _FUSES or not tensors:
        return None
    largest = max(tensors, key=lambda tensor: prod(tensor.shape))
    return _of_rows(signature.call) if kind == _REDUCTION else largest.shape


def _of_rows(call: OpCall | None) -> tuple[int, ...] | None:
    """The shape of a reduction of a tensor along its rows; None where it is along others."""
    tensor = None if call is None else call.tensor(0)
    if call is None or tensor is None or not tensor.shape:
        return None
    along_rows = call.integers(_AXES_AT) in ((-1,), (len(tensor.shape) - 1,))
    return (*tensor.shape[:-1], 1) if along_rows else None


def _tensors(signature: Signature) -> list[Tensor]:
    if signature.call is None:
        return []
    return [each for each in signature.call.arguments if isinstance(each, Tensor)]


def _takes(signature: Signature, shape: tuple[int, ...]) -> bool:
    # Reductions may drop the axis that they sum over.
    shapes = (shape, shape[:-1]) if shape[-1:] == (1,) else (shape,)
    return any(tensor.shape in shapes for tensor in _tensors(signature))


def _candidate(
    signatures: Sequence[Signature], durations_ns: Sequence[int], work: Work
) -> Candidate | None:
    """The gain where all passes between the operators go; the most where nothing else is read.

    Of an operator with several operands of the chain's shape all but one may be other tensors,
    which the fused kernel still reads; or they may be the chain's own, as in x * x.
    """
    moved = [_moved(signature) for signature in signatures]
    read, written = [each[0] for each in moved], [each[1] for each in moved]
    if None in read or None in written:
        return None
    known_read = [each or 0 for each in read]
    known_written = [each or 0 for each in written]
    all_bytes = sum(known_read) + sum(known_written)
    if not all_bytes:
        return None
    passed = known_written[:-1]
    least_saved = sum(2 * each for each in passed)
    # What every operator after the first reads comes from the chain.
    most_saved = sum(passed) + sum(known_read[1:])
    total_ns = sum(durations_ns)
    most, least = (min(1.0, saved / all_bytes) for saved in (most_saved, least_saved))
    least = min(least, most)
    likely = most if len(signatures) >= _LONG else (most + least) / 2
    gain = Gain(*(round(total_ns * share / work.steps) for share in (likely, least, most)))
    names = _in_short([signature.name for signature in signatures])
    calls = len(durations_ns) / work.steps
    evidence = (
        f"{len(signatures)} operators in a row take {duration(round(total_ns / work.steps))} "
        f"{work.per}"
        f"{'' if calls == 1 else f' in {calls:.3g} places'} and pass {size_text(sum(passed))} to "
        "each other, written once and read again"
    )
    return Candidate(finding="fusion", what=names, gain=gain, evidence=evidence)


def _moved(signature: Signature) -> tuple[int | None, int | None]:
    cost = signature.cost
    return (None, None) if cost is None else (cost.bytes_read, cost.bytes_written)


def _in_short(names: Sequence[str]) -> str:
    """Operators of a chain: equal neighbours once, with their number."""
    parts: list[tuple[str, int]] = []
    for name in names:
        short = name.removeprefix("aten::")
        if parts and parts[-1][0] == short:
            parts[-1] = (short, parts[-1][1] + 1)
        else:
            parts.append((short, 1))
    written = [name if count == 1 else f"{name} x{count}" for name, count in parts]
    left = len(written) - _NAMED
    return ", ".join(written[:_NAMED]) + (f" and {left} more" if left > 0 else "")
