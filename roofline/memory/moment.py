"""What was allocated at one moment, by kind and by origin."""

from typing import Final, cast

import polars as pl

from gpuprof.collectors.stacks import user_line
from gpuprof.roofline.memory.kinds import KIND_OF_HELD
from gpuprof.roofline.memory.lifetimes import Lifetimes
from gpuprof.roofline.memory_figures import KindBytes, MemoryHolder, MemoryKind, MemoryMoment

_MOST_HOLDERS: Final = 30
_ORIGIN: Final = ("kind", "operator", "module", "line")
_PIECE: Final = (*_ORIGIN, "bytes", "stack")


def moment_of_events(
    lives: Lifetimes, blocks: pl.DataFrame, position: int, *, step: int | None
) -> MemoryMoment:
    """What lived after `position` events; `blocks` are those of `lives` with their kinds."""
    live = blocks.filter(
        (pl.col("born") <= position) & (pl.col("died").is_null() | (pl.col("died") > position))
    )
    freed_later = lives.freed_earlier.filter(pl.col("died") > position)
    pieces = pl.concat(
        [
            live.select(*_PIECE),
            _held(lives.stayed).select(*_PIECE),
            freed_later.select(
                kind=pl.lit("earlier"),
                operator=pl.lit(""),
                module=pl.lit(""),
                line=pl.lit(""),
                bytes="bytes",
                stack=pl.lit(None, pl.String),
            ),
        ]
    )
    return _moment(
        pieces,
        time_ns=int(lives.times_ns[position]),
        step=step,
        allocated_bytes=int(lives.allocated[position]),
        reserved_bytes=lives.reserved_at(position),
    )


def moment_of_blocks(
    blocks: pl.DataFrame, *, time_ns: int, begun: pl.DataFrame | None = None
) -> MemoryMoment:
    """What lived when `blocks`, all rows of `memory_blocks` of one device and moment, were seen.

    `begun` are blocks of `Lifetimes` with their kinds, which tell the operator of those that they
    hold.
    """
    pieces = _held(blocks.filter(pl.col("state") == "allocated"))
    if begun is not None:
        origin = begun.filter(
            (pl.col("born_ns") <= time_ns)
            & (pl.col("died_ns").is_null() | (time_ns < pl.col("died_ns")))
        ).unique("address", keep="last")
        pieces = pieces.join(
            origin.select("address", "kind", "operator", "module", "line"),
            on="address",
            how="left",
            suffix="_begun",
            maintain_order="left",
        ).with_columns(
            # How it came about tells more of it than that a variable holds it.
            kind=pl.when(pl.col("kind").is_in(["earlier", "tensors"]))
            .then(pl.coalesce("kind_begun", "kind"))
            .otherwise("kind"),
            **{name: pl.coalesce(f"{name}_begun", name) for name in ("operator", "module", "line")},
        )
    reserved = blocks.filter(pl.col("segment").is_not_null()).unique("segment")["segment_bytes"]
    return _moment(
        pieces.select(*_PIECE),
        time_ns=time_ns,
        step=None,
        allocated_bytes=int(pieces["bytes"].sum()),
        reserved_bytes=int(reserved.sum()) if len(reserved) else None,
    )


def _held(blocks: pl.DataFrame) -> pl.DataFrame:
    """Blocks without the operator that allocated them, by what holds them."""
    kind = pl.col("category").replace_strict(KIND_OF_HELD, default="earlier")
    return blocks.select(
        "address",
        "bytes",
        "stack",
        kind=kind,
        operator=pl.lit(""),
        module=pl.lit(""),
        line=pl.lit(""),
    )


def _moment(
    pieces: pl.DataFrame,
    *,
    time_ns: int,
    step: int | None,
    allocated_bytes: int,
    reserved_bytes: int | None,
) -> MemoryMoment:
    rest = allocated_bytes - int(pieces["bytes"].sum())
    if rest < 0:
        # Events were lost: what seems to live is more than the allocator says, so nothing tells.
        pieces, rest = pieces.clear(), 0
    if rest > 0:
        unknown = pieces.clear().vstack(
            pl.DataFrame(
                [{"kind": "earlier", "operator": "", "module": "", "line": "", "bytes": rest}],
                schema=pieces.schema,
            )
        )
        pieces = pl.concat([pieces, unknown])
    lines = {stack: user_line(stack) for stack in pieces["stack"].unique().drop_nulls()}
    pieces = pieces.with_columns(
        # Of what nobody saw begin only the sum is known.
        known=pl.int_range(pl.len()) < pieces.height - (rest > 0),
        # A stack of the allocation itself is nearer than the operator's line.
        line=pl.coalesce(
            pl.col("stack").replace_strict(lines, default=None, return_dtype=pl.String), "line"
        ),
    )
    kinds = (
        pieces.group_by("kind")
        .agg(pl.col("bytes").sum())
        .sort("bytes", "kind", descending=[True, False])
    )
    holders = (
        pieces.group_by(_ORIGIN)
        .agg(pl.col("bytes").sum(), blocks=pl.when(pl.col("known").all()).then(pl.len()))
        .sort("bytes", *_ORIGIN, descending=[True, False, False, False, False])
    )
    others = holders.slice(_MOST_HOLDERS)
    return MemoryMoment(
        time_ns=time_ns,
        step=step,
        allocated_bytes=allocated_bytes,
        reserved_bytes=reserved_bytes,
        kinds=tuple(KindBytes(cast("MemoryKind", kind), size) for kind, size in kinds.iter_rows()),
        holders=tuple(
            MemoryHolder(**row) for row in holders.head(_MOST_HOLDERS).iter_rows(named=True)
        ),
        other_holders=others.height,
        other_holders_bytes=int(others["bytes"].sum()),
    )
