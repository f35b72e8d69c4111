"""Kernels of a trace with what their names tell: communication, a copy, a fill.

Every reader asks here, so that the same kernel is communication whichever tool recorded it.
"""

import polars as pl

from gpuprof.collectors.kernel_kinds import kind_rows


def with_kinds(kernels: pl.DataFrame) -> pl.DataFrame:
    """`kernels` with `kind` told by name where that is "kernel", and `collective` where it is null.

    Metadata that a trace has of a collective counts before its name.
    """
    named = _by_name(kernels.filter(pl.col("kind") == "kernel")["name"])
    # Beside the table: joined to it, all its other columns would be copied.
    found = kernels.select("name").join(named, on="name", how="left", maintain_order="left")
    told = pl.col("kind") == "kernel"
    return (
        pl.concat([kernels, found.drop("name")], how="horizontal")
        .with_columns(
            kind=pl.when(told & pl.col("collective").is_not_null())
            .then(pl.lit("collective"))
            .when(told)
            .then(pl.coalesce("named_kind", "kind"))
            .otherwise("kind"),
            collective=pl.when(told)
            .then(pl.coalesce("collective", "named_collective"))
            .otherwise("collective"),
        )
        .drop("named_kind", "named_collective")
    )


def _by_name(names: pl.Series) -> pl.DataFrame:
    """A row for each distinct name; both its columns are null where no row of the table matches."""
    matches = [(pl.col("name").str.contains(row.pattern), row) for row in kind_rows()]
    return (
        names.unique()
        .to_frame("name")
        .select(
            "name",
            named_kind=pl.coalesce(pl.when(found).then(pl.lit(row.kind)) for found, row in matches),
            # A row without a collective ends the search as well.
            named_collective=pl.coalesce(
                pl.when(found).then(pl.lit(row.collective or "")) for found, row in matches
            ).replace("", None),
        )
    )
