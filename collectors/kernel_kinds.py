"""What a kernel is by its name: communication, a copy, a fill, or a kernel that computes.

Every reader asks here, so that the same kernel is communication whichever tool recorded it. The
names are in `kernel_kinds.toml`, each with its source.
"""

from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec
import polars as pl

# As compilers print them, and as they mangle them (_ZN4vllm26cross_device_reduce_1stage...).
_BEFORE_A_NAME: Final = r"^(?:(?:void )?(?:(?:\(anonymous namespace\)|\w+)::)*|_Z\w*?\d)"
_BEFORE_A_NAMESPACE: Final = r"^(?:void )?"


class KindRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: Literal["collective", "memcpy", "memset"]
    source: str
    names: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    collective: str | None = None

    @property
    def pattern(self) -> str:
        if self.within:
            return f"{_BEFORE_A_NAMESPACE}(?:{'|'.join(self.within)})::"
        return f"{_BEFORE_A_NAME}(?:{'|'.join(self.names)})"


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kinds: tuple[KindRow, ...]


def with_kinds(kernels: pl.DataFrame) -> pl.DataFrame:
    """`kernels` with `kind` told by name where that is "kernel", and `collective` where it is null.

    Metadata that a trace has of a collective counts before its name.
    """
    named = _by_name(kernels.filter(pl.col("kind") == "kernel")["name"])
    found = kernels.join(named, on="name", how="left", maintain_order="left")
    told = pl.col("kind") == "kernel"
    return found.with_columns(
        kind=pl.when(told & pl.col("collective").is_not_null())
        .then(pl.lit("collective"))
        .when(told)
        .then(pl.coalesce("named_kind", "kind"))
        .otherwise("kind"),
        collective=pl.when(told)
        .then(pl.coalesce("collective", "named_collective"))
        .otherwise("collective"),
    ).drop("named_kind", "named_collective")


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


@cache
def kind_rows() -> tuple[KindRow, ...]:
    """The rows of `kernel_kinds.toml`, the first that matches a name first."""
    text = files("gpuprof.collectors").joinpath("kernel_kinds.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).kinds
