"""What an allocator holds and does not give out."""

import polars as pl

from gpuprof.roofline.memory_figures import Fragmentation


def fragmentation(blocks: pl.DataFrame) -> Fragmentation | None:
    """Of all blocks of one device at one moment; None where its segments are not known."""
    blocks = blocks.filter(pl.col("segment").is_not_null())
    if blocks.is_empty():
        return None
    size = {
        str(state): int(total)
        for state, total in blocks.group_by("state").agg(pl.col("bytes").sum()).iter_rows()
    }
    free = blocks.filter(pl.col("state") == "free")
    used = blocks.filter(pl.col("state") != "free")["segment"].unique()
    return Fragmentation(
        reserved_bytes=int(blocks.unique("segment")["segment_bytes"].sum()),
        allocated_bytes=size.get("allocated", 0),
        pending_bytes=size.get("pending free", 0),
        largest_free_block_bytes=int(free["bytes"].max() or 0),  # type: ignore[arg-type]
        inactive_split_bytes=int(
            free.filter(pl.col("segment").is_in(used.implode()))["bytes"].sum()
        ),
    )
