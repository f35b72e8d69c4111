"""Collectives as reports spell them, whatever they are called in a trace."""

from typing import Final

import polars as pl

from gpuprof.roofline.bus_bandwidth import find_collective

SEND: Final = "send"
RECEIVE: Final = "receive"


def kinds_of(collectives: pl.Series) -> pl.Series:
    """The name of each in `collectives.toml`; null for what the table does not have."""
    names = {
        name: row.name
        for name in collectives.drop_nulls().unique()
        if (row := find_collective(name)) is not None
    }
    found: pl.Series = collectives.replace_strict(names, default=None, return_dtype=pl.String)
    return found
