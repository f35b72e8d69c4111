"""What of the device work sends data to other devices or copies it over a link.

Such work stands against the link that it uses, and costs a step only what nothing hides of it. All
figures are of one kernel, so that what is said of kernels, operators and ranges adds up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from gpuprof.roofline import copies
from gpuprof.roofline.bus_bandwidth import collectives_by_operator, find_collective
from gpuprof.roofline.classes import COMMUNICATION, COPY
from gpuprof.roofline.cost_models.call import OpCall
from gpuprof.roofline.cost_models.collective import called_collective, named_collective
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.intervals import Nanoseconds, covered_ns, merged
from gpuprof.roofline.work.call_runs import call_waits_ns, with_call_runs

# Its last argument is the number of ranks (torch/csrc/distributed/c10d/ParamCommsUtils.hpp).
_PARAMETERS: Final = "record_param_comms"
# Those of torch 1.12 and before stand without it.
_OPERATORS_OF_C10D: Final = "c10d::"
_OF_CALL_RUNS: Final = ("launch_ns", "elementwise")


@dataclass(frozen=True)
class RankWaits:
    """What the collectives of one rank wait for others, as far as it is known."""

    # Columns kernel_row and rank_wait_ns.
    of_kernels: pl.DataFrame
    # What stragglers make the rank wait in a step.
    late_ns: int


def with_transfers(
    kernels: pl.DataFrame,
    calls: Sequence[tuple[OpCall | None, Cost | None]],
) -> pl.DataFrame:
    """`kernels` with what each moves over a link.

    transfer: communication, copy, or null for work that computes (and for copies and fills within
    a device); what: the collective, or the copy's direction, "" where unknown; host_memory:
    pageable or pinned, of a copy whose name says so; message_bytes: also where the operator alone
    tells it; group_size likewise; link_bytes: what of it crosses this device's link, null where
    unknown; exposed_ns: how much of its time nothing else on its device hides. Computing hides
    copies and communication, copies hide communication. mergeable and direct:
    `gpuprof.roofline.work.call_runs`, for which launch_ns and elementwise are there, and are taken
    away. rank_wait_ns, exposed_wait_ns and call_wait_ns: null, see `with_waits`.

    `calls` has the call and the cost of each signature in the column `signature`.
    """
    kernels = kernels.with_columns(
        transfer=pl.when(pl.col("kind") == "collective")
        .then(pl.lit(COMMUNICATION))
        .when(copies.over_link())
        .then(pl.lit(COPY))
    )
    if kernels["transfer"].null_count() == kernels.height:
        return kernels.drop(_OF_CALL_RUNS).with_columns(
            what=pl.lit(""),
            host_memory=pl.lit(""),
            link_bytes=pl.lit(None, pl.Float64),
            exposed_ns=pl.lit(0, pl.Int64),
            rank_wait_ns=pl.lit(None, pl.Int64),
            exposed_wait_ns=pl.lit(None, pl.Int64),
            mergeable=pl.lit(False),
            direct=pl.lit(False),
            call_wait_ns=pl.lit(None, pl.Int64),
        )
    kernels = _as_operators_say(_named(kernels), calls)
    kernels = kernels.with_columns(
        link_bytes=_link_bytes(kernels),
        exposed_ns=pl.Series(_exposed_ns(kernels, kernels["end_ns"].to_numpy())),
        rank_wait_ns=pl.lit(None, pl.Int64),
        exposed_wait_ns=pl.lit(None, pl.Int64),
        call_wait_ns=pl.lit(None, pl.Int64),
    )
    return with_call_runs(kernels).drop(_OF_CALL_RUNS)


def with_waits(kernels: pl.DataFrame, waits: RankWaits) -> pl.DataFrame:
    """`kernels`, as `with_transfers` gives them, with what collectives waited for other ranks.

    rank_wait_ns: the first part of its time, in which it waits, of which exposed_wait_ns is
    exposed; null where unknown. call_wait_ns: `gpuprof.roofline.work.call_runs`.
    """
    if waits.of_kernels.is_empty():
        return kernels
    found = kernels.select("kernel_row").join(
        waits.of_kernels, on="kernel_row", how="left", maintain_order="left"
    )["rank_wait_ns"]
    until_ns = kernels["start_ns"].to_numpy() + found.fill_null(0).to_numpy()
    exposed = pl.Series(_exposed_ns(kernels, until_ns)).set(found.is_null(), None)
    kernels = kernels.with_columns(rank_wait_ns=found, exposed_wait_ns=exposed)
    return kernels.with_columns(call_wait_ns=call_waits_ns(kernels, waits.late_ns))


def _named(kernels: pl.DataFrame) -> pl.DataFrame:
    """`kernels` with what and host_memory, told by names; each distinct name is looked at once."""
    copied = kernels.select("name", "transfer").filter(pl.col("transfer") == COPY)
    names = copied["name"].unique().to_list()
    collectives = kernels["collective"].drop_nulls().unique().to_list()
    rows = {name: find_collective(name) for name in collectives}
    spelled = {name: name if row is None else row.name for name, row in rows.items()}

    def of_copies(told: dict[str, str]) -> pl.Expr:
        return pl.col("name").replace_strict(told, default="", return_dtype=pl.String)

    return kernels.with_columns(
        what=pl.when(pl.col("transfer") == COMMUNICATION)
        .then(pl.col("collective").replace_strict(spelled, default="", return_dtype=pl.String))
        .otherwise(of_copies({name: copies.direction(name) for name in names})),
        host_memory=of_copies({name: copies.host_memory(name) for name in names}),
    ).with_columns(pl.col("what").fill_null(""))


def _as_operators_say(
    kernels: pl.DataFrame, calls: Sequence[tuple[OpCall | None, Cost | None]]
) -> pl.DataFrame:
    """`kernels` with the messages and groups that only the operator above them tells.

    Of several collectives under one operator nothing tells which is how large.
    """
    communicates = pl.col("transfer") == COMMUNICATION
    # Of a few columns and rows: a trace has some hundred collectives among its kernels.
    sent = kernels.select("transfer", "signature", "owner_id").filter(communicates)
    signatures = sent["signature"].drop_nulls().unique()
    senders = sent["owner_id"]
    several = senders.filter(senders.is_duplicated()).unique()
    told = pl.DataFrame(
        [(index, *_told(*calls[index])) for index in signatures],
        schema={
            "signature": kernels.schema["signature"],
            "told_bytes": pl.Int64,
            "told_ranks": pl.Int32,
            "told_what": pl.String,
        },
        orient="row",
    )
    alone = communicates & ~pl.col("owner_id").is_in(several.implode(), nulls_equal=True)
    found = kernels.select("signature").join(
        told, on="signature", how="left", maintain_order="left"
    )
    return (
        pl.concat([kernels, found.drop("signature")], how="horizontal")
        .with_columns(
            message_bytes=pl.coalesce("message_bytes", pl.when(alone).then("told_bytes")),
            group_size=pl.coalesce("group_size", pl.when(communicates).then("told_ranks")),
            what=pl.when(communicates & (pl.col("what") == ""))
            .then(pl.col("told_what").fill_null(""))
            .otherwise("what"),
        )
        .drop("told_bytes", "told_ranks", "told_what")
    )


def _told(call: OpCall | None, cost: Cost | None) -> tuple[int | None, int | None, str | None]:
    """The message of a call, by nccl-tests its larger buffer; its ranks; and its collective."""
    sizes = None
    if cost is not None and cost.bytes_read is not None and cost.bytes_written is not None:
        sizes = cost.bytes_read, cost.bytes_written
    message = None if sizes is None else max(sizes)
    if call is None:
        return message, None, None
    if call.name == _PARAMETERS:
        collective = named_collective(call)
        what = None if collective is None else collective.name
        return message, call.integer(len(call.arguments) - 1), what
    alone = collectives_by_operator().get(call.name)
    if alone is None and call.name.startswith(_OPERATORS_OF_C10D):
        alone = called_collective(call)
    ranks = None
    if (
        alone is not None
        and sizes
        and min(sizes)
        and alone.output in ("n inputs", "share of input")
    ):
        ranks = max(sizes) // min(sizes)
    return message, ranks, None if alone is None else alone.name


def _link_bytes(kernels: pl.DataFrame) -> pl.Expr:
    """Bytes over this device's link: a copy's own, of a message as its bus factor says."""
    pairs = (
        kernels.select("transfer", "what", "group_size")
        .filter(pl.col("transfer") == COMMUNICATION)
        .drop("transfer")
        .unique()
    )
    factors = []
    for what, ranks in pairs.drop_nulls().iter_rows():
        row = find_collective(what)
        factors.append(None if row is None else row.bus_factor(ranks))
    known = pairs.drop_nulls().with_columns(factor=pl.Series(factors, dtype=pl.Float64))
    sent = kernels.select("what", "group_size")
    factor = sent.join(known, on=["what", "group_size"], how="left", maintain_order="left")[
        "factor"
    ]
    return (
        pl.when(pl.col("transfer") == COMMUNICATION)
        .then(pl.col("message_bytes") * factor)
        .when(pl.col("transfer") == COPY)
        .then(pl.col("bytes").cast(pl.Float64))
    )


def _exposed_ns(kernels: pl.DataFrame, until_ns: Nanoseconds) -> Nanoseconds:
    """For each row what of its time until `until_ns` no other work on its device hides.

    0 where it computes.
    """
    exposed = np.zeros(kernels.height, np.int64)
    starts, ends = kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()
    devices = kernels["device"].fill_null(-1).to_numpy()
    transfer = kernels["transfer"].fill_null("")
    computes, copying = (transfer == "").to_numpy(), (transfer == COPY).to_numpy()
    communicates = ~computes & ~copying
    for device in np.unique(devices):
        here = devices == device
        for rows, hiding in (
            (here & copying, here & computes),
            (here & communicates, here & ~communicates),
        ):
            cover = merged(starts[hiding], ends[hiding])
            hidden = covered_ns(cover, until_ns[rows]) - covered_ns(cover, starts[rows])
            exposed[rows] = until_ns[rows] - starts[rows] - hidden
    return exposed
