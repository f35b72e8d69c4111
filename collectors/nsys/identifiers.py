"""How Nsight Systems writes threads, processes and texts.

globalTid = host and machine bits << 48 | process << 24 | thread; globalPid is that with the low 24
bits cleared.
"""

import polars as pl

_FIELD = 2**24
_FIELD_MASK = _FIELD - 1


def process_of(column: str) -> pl.Expr:
    """The operating system's process id in a globalPid or globalTid."""
    return (pl.col(column) // _FIELD) & _FIELD_MASK


def thread_of(column: str) -> pl.Expr:
    """The operating system's thread id in a globalTid."""
    return pl.col(column) & _FIELD_MASK


def global_pid_of_thread(column: str) -> pl.Expr:
    """The globalPid of the process that a globalTid belongs to."""
    return pl.col(column) & ~_FIELD_MASK


def zero_is_null(column: str) -> pl.Expr:
    """Old exports write 0 where newer ones write NULL; as an id 0 means none in both."""
    return pl.when(pl.col(column) != 0).then(pl.col(column))


def resolve(frame: pl.DataFrame, strings: pl.DataFrame, id_column: str, name: str) -> pl.DataFrame:
    """`frame` with column `name`: the text whose id stands in `id_column`, null where none."""
    return frame.join(
        strings.rename({"id": id_column, "value": name}),
        on=id_column,
        how="left",
        maintain_order="left",
    )
