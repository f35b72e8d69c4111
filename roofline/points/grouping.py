"""Groups of kernels and what the rows of each agree in."""

from collections.abc import Sequence

import polars as pl


def grouped(kernels: pl.DataFrame, keys: Sequence[str], *figures: pl.Expr) -> pl.DataFrame:
    """A row with `figures` for each group of `kernels` with equal `keys`, in their order.

    Numbers are quicker to group by than texts: in `figures` texts are categories.
    """
    texts = pl.col(pl.String).cast(pl.Categorical)
    groups = kernels.with_columns(texts).group_by(keys, maintain_order=True).agg(figures)
    return groups.with_columns(pl.col(pl.Categorical).cast(pl.String))


def one_of(column: str) -> pl.Expr:
    """The number that all rows of a group have; null where they differ.

    Of the least and the largest value, which are quicker to find than the different ones.
    """
    value = pl.col(column)
    same = (value.min() == value.max()) & (value.null_count() == 0)
    return pl.when(same).then(value.first()).alias(column)


def one_text_of(column: str) -> pl.Expr:
    """The text that all rows of a group have; null where they differ, or one is null.

    A text again, as polars before 1.32 warns of categories that have nulls put in.
    """
    value, number = pl.col(column), pl.col(column).to_physical()
    same = (number.min() == number.max()) & (value.null_count() == 0)
    return pl.when(same).then(value.first().cast(pl.String)).alias(column)
