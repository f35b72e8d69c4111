"""Collectives of a CPU run, which threads of their backend carry out: gloo's, or MPI's.

An operator of c10d puts the collective into a queue and returns; a thread of the backend takes it
from there, in order, and the profiler has that as a range such as gloo:all_reduce, from when the
thread begins until the data is there (pytorch torch/csrc/distributed/c10d/ProcessGroupGloo.cpp,
recordAsyncWorkProfilingInfo). So the operator is the launch, and the range is the work. The
range's arguments are the tensors put in, and their element type, which the operator's own lists of
tensors lack. Groups and sequence numbers are not in a trace: who recorded it can have them from
torch's flight recorder (`gpuprof.collectors.recorded_collectives`).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.collective_dtypes import scalar_type_names
from gpuprof.collectors.kineto.metadata import group_sizes
from gpuprof.collectors.recorded_collectives import RecordedCollective

_OPERATOR: Final = "c10d::"
# Between the flight recorder's reading of the clock and the begin or end of the operator.
_CLOCK_TOLERANCE_NS: Final = 20_000


@dataclass(frozen=True)
class _Kind:
    """What an operator of c10d has carried out."""

    # As torch spells it in `record_param_comms`.
    collective: str
    # The name of the range, without its backend.
    range: str
    # The operator's argument with what is put in, which the range has as its own.
    put_in: int = 0
    # The argument with the whole buffer, where that is not what is put in; or with this rank's
    # share of it, where that is not recorded.
    whole: int | None = None
    share: int | None = None


_KINDS: Final = {
    "allreduce_": _Kind("allreduce", "all_reduce"),
    "allreduce_coalesced_": _Kind("allreduce_coalesced", "all_reduce"),
    "_allgather_base_": _Kind("_allgather_base", "all_gather", put_in=1, whole=0),
    "allgather_": _Kind("allgather", "all_gather", put_in=1, share=1),
    "allgather_coalesced_": _Kind("allgather_coalesced", "all_gather", put_in=1, share=1),
    "allgather_into_tensor_coalesced_": _Kind(
        "all_gather_into_tensor_coalesced", "all_gather", put_in=1, whole=0
    ),
    # gloo reduces all of it and keeps a share (ProcessGroupGloo.cpp).
    "_reduce_scatter_base_": _Kind("_reduce_scatter_base", "all_reduce", put_in=1),
    "reduce_scatter_": _Kind("reduce_scatter", "all_reduce", put_in=1, share=0),
    "reduce_scatter_tensor_coalesced_": _Kind(
        "reduce_scatter_tensor_coalesced", "all_reduce", put_in=1
    ),
    "broadcast_": _Kind("broadcast", "broadcast"),
    "reduce_": _Kind("reduce", "reduce"),
    "gather_": _Kind("gather", "gather", put_in=1, share=1),
    "scatter_": _Kind("scatter", "scatter", put_in=1, share=0),
    "alltoall_base_": _Kind("all_to_all", "all_to_all", put_in=1, whole=0),
    "alltoall_": _Kind("all_to_all", "all_to_all", put_in=1, whole=0),
    "barrier": _Kind("barrier", "barrier"),
    "send": _Kind("send", "send"),
    "recv_": _Kind("recv", "recv"),
    "recv_any_source_": _Kind("recv", "recv"),
}
_ONE_RANGE: Final = {
    "sparse_all_reduce": "all_reduce",
    "_allgather_base": "all_gather",
    "reduce_scatter": "all_reduce",
    "_reduce_scatter_base": "all_reduce",
    "recvAnySource": "recv",
}
_COLUMNS: Final = {
    "op_id": pl.Int64,
    "collective": pl.String,
    "dtype": pl.String,
    "elements_in": pl.Int64,
    "elements_out": pl.Int64,
    "group": pl.String,
    "group_size": pl.Int64,
    "sequence": pl.Int64,
}


def host_collectives(
    ranges: pl.DataFrame,
    ops: pl.DataFrame,
    fields: Mapping[str, object],
    recorded: Sequence[RecordedCollective],
    base_ns: int,
) -> pl.DataFrame:
    """The collectives as rows of the table kernels, still without message_bytes.

    `ranges` are their rows of the trace with arguments, `ops` the operators with op_id. `fields`
    is the trace's metadata, which names the group where there is one only. Times of `recorded` are
    Unix times, which those of the trace are once `base_ns` is added. The stream is the thread.
    """
    ranges = ranges.sort("start_ns", maintain_order=True)
    works = [
        _work(*row)
        for row in ranges.select("name", "start_ns", "input_dims", "input_types").iter_rows()
    ]
    calls = _calls(ops)
    told = _recorded_of(calls, recorded, base_ns)
    sizes = group_sizes(fields)
    only = next(iter(sizes)) if len(sizes) == 1 else None
    rows = []
    for work, number in zip(works, _partners(works, calls), strict=True):
        found = None if number is None else told.get(number)
        group = only if found is None else found.group
        ranks = None if group is None else sizes.get(group)
        rows.append(
            {
                **_message(work, None if number is None else calls[number], ranks),
                "group": group,
                "group_size": ranks,
                "sequence": None if found is None else found.sequence,
            }
        )
    return pl.concat(
        [
            ranges.select("start_ns", "end_ns", "name", "process", stream="thread"),
            pl.DataFrame(rows, schema=_COLUMNS),
        ],
        how="horizontal",
    ).with_columns(kind=pl.lit("collective"), device=pl.lit(0), context=pl.lit(0))


@dataclass(frozen=True)
class _Work:
    """One range of a backend."""

    # Without its backend.
    name: str
    start_ns: int
    elements: int | None
    dtype: str | None


@dataclass(frozen=True)
class _Call:
    """One operator of c10d that puts a collective into a queue."""

    op_id: int
    start_ns: int
    end_ns: int
    kind: _Kind
    dims: list[Any]
    concrete: list[str]

    def elements(self, argument: int) -> int | None:
        """Of the tensors of an argument."""
        return _elements(self.dims[argument : argument + 1])


def _work(name: str, start_ns: int, dims: str | None, types: str | None) -> _Work:
    short = name.partition(":")[2]
    names = {text for text in msgspec.json.decode(types or "[]") if text}
    return _Work(
        _ONE_RANGE.get(short, short),
        start_ns,
        _elements(msgspec.json.decode(dims or "[]")),
        scalar_type_names().get(names.pop()) if len(names) == 1 else None,
    )


def _calls(ops: pl.DataFrame) -> list[_Call]:
    """In the order in which they began."""
    calls = []
    for row in ops.filter(pl.col("name").str.starts_with(_OPERATOR)).iter_rows(named=True):
        kind = _KINDS.get(row["name"].removeprefix(_OPERATOR))
        if kind is None:
            continue
        texts = (row["input_dims"], row["concrete_inputs"])
        dims, concrete = (msgspec.json.decode(text or "[]") for text in texts)
        calls.append(_Call(row["op_id"], row["start_ns"], row["end_ns"], kind, dims, concrete))
    return calls


def _partners(works: Sequence[_Work], calls: Sequence[_Call]) -> list[int | None]:
    """For each work the number of the call that put it into the queue.

    Those of one name and size come first; the others are then matched by name alone, for a list of
    tensors may have been too long to be recorded.
    """
    partners: list[int | None] = [None] * len(works)
    for sized in (True, False):
        taken = {number for number in partners if number is not None}
        waiting: defaultdict[Any, list[int]] = defaultdict(list)
        for number, call in enumerate(calls):
            if number not in taken:
                size = call.elements(call.kind.put_in) if sized else None
                waiting[call.kind.range, size].append(number)
        begun: defaultdict[Any, list[int]] = defaultdict(list)
        for number, work in enumerate(works):
            if partners[number] is None:
                begun[work.name, work.elements if sized else None].append(number)
        for key, of_works in begun.items():
            of_calls = waiting.get(key, [])
            first = _first(
                [works[number].start_ns for number in of_works],
                [calls[number].start_ns for number in of_calls],
            )
            for number, of_call in zip(of_works[first:], of_calls, strict=False):
                # What no work follows was called last, and its own had not begun.
                if works[number].start_ns >= calls[of_call].start_ns:
                    partners[number] = of_call
    return partners


def _first(works_ns: Sequence[int], calls_ns: Sequence[int]) -> int:
    """Which work is that of the first call: the earlier ones were called before the recording.

    A queue is first in, first out, and no work begins before its call. Both are in order.
    """
    after = np.searchsorted(works_ns, calls_ns, side="left")
    begun = after < len(works_ns)
    too_early = (after - np.arange(len(calls_ns)))[begun]
    return int(max(0, len(works_ns) - len(calls_ns), too_early.max(initial=0)))


def _message(work: _Work, call: _Call | None, ranks: int | None) -> dict[str, Any]:
    """The collective and its buffers; a message is the larger of them."""
    collective, whole = work.name, None
    if call is not None:
        kind = call.kind
        collective = kind.collective
        if collective == "all_to_all" and _is_uneven(call):
            collective = "all_to_allv"
        if kind.whole is not None:
            whole = call.elements(kind.whole)
        share = None if kind.share is None else call.elements(kind.share)
        if share is not None and ranks is not None:
            whole = share * ranks
        elif kind.share is not None:
            # What this rank puts in is a part of an unknown whole.
            work = _Work(work.name, work.start_ns, None, work.dtype)
    # A barrier's tensor is a dummy. Without its call nothing tells a gathered buffer's size.
    known = collective == "all_reduce" if call is None else collective != "barrier"
    return {
        "op_id": None if call is None else call.op_id,
        "collective": collective,
        "dtype": work.dtype if known else None,
        "elements_in": work.elements if known else None,
        "elements_out": whole,
    }


def _is_uneven(call: _Call) -> bool:
    """Whether an all-to-all names shares that differ."""
    lists = [msgspec.json.decode(text) for text in call.concrete if text.startswith("[")]
    return any(len(set(shares)) > 1 for shares in lists)


def _recorded_of(
    calls: Sequence[_Call], recorded: Sequence[RecordedCollective], base_ns: int
) -> dict[int, RecordedCollective]:
    """What was recorded of each call, by its number: during it, of its name, and nothing else so.

    No call is a neighbour's: where two could have a record, neither has it.
    """
    by_name: defaultdict[str, list[RecordedCollective]] = defaultdict(list)
    for one in sorted(recorded, key=lambda one: one.created_ns):
        short = one.name.partition(":")[2]
        by_name[_ONE_RANGE.get(short, short)].append(one)
    times = {name: np.array([one.created_ns for one in found]) for name, found in by_name.items()}
    found: dict[int, RecordedCollective] = {}
    for number, call in enumerate(calls):
        name = call.kind.range
        if name not in times:
            continue
        first, last = np.searchsorted(
            times[name],
            (
                base_ns + call.start_ns - _CLOCK_TOLERANCE_NS,
                base_ns + call.end_ns + _CLOCK_TOLERANCE_NS,
            ),
        )
        if last - first == 1:
            found[number] = by_name[name][first]
    return found


def _elements(dims: Sequence[Any]) -> int | None:
    """Of tensors by their dimensions, in lists or not; None where there is none."""
    if not dims:
        return None
    sizes = [size for size in dims if isinstance(size, int)]
    if len(sizes) == len(dims):
        return math.prod(sizes)
    parts = [_elements(each) for each in dims]
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
