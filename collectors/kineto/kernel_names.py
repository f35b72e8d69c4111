"""What a device event is by its name, and how large a collective's message was."""

from functools import cache
from importlib.resources import files

import msgspec
import polars as pl

from gpuprof.collectors.kineto.findings import Findings


class _Kind(msgspec.Struct, frozen=True):
    kind: str
    pattern: str
    source: str


class _Dtypes(msgspec.Struct, frozen=True):
    source: str
    bytes: dict[str, int]


class _KernelNames(msgspec.Struct, frozen=True):
    kinds: tuple[_Kind, ...]
    dtypes: tuple[_Dtypes, ...]


def classify(kernels: pl.DataFrame, findings: Findings) -> pl.DataFrame:
    """`kernels` with `kind` told by name where that says more, and `message_bytes`.

    A message is the full buffer: the larger of the elements put in and got out, times the size of
    an element (nccl-tests, doc/PERFORMANCE.md). Null where the trace does not say.
    """
    table = _table()
    by_name = pl.coalesce(
        pl.when(pl.col("collective").is_not_null()).then(pl.lit("collective")),
        *(
            pl.when(pl.col("name").str.contains(row.pattern)).then(pl.lit(row.kind))
            for row in table.kinds
        ),
        "kind",
    )
    sizes = {name: size for group in table.dtypes for name, size in group.bytes.items()}
    size = pl.col("dtype").replace_strict(sizes, default=None, return_dtype=pl.Int64)
    # Only a count that times an element's size still fits is a count of elements.
    elements = pl.max_horizontal("elements_in", "elements_out").pipe(
        lambda count: pl.when(count.is_between(0, 2**55)).then(count)
    )
    unknown = kernels.filter(pl.col("dtype").is_not_null() & size.is_null())["dtype"]
    findings.unknown_dtypes.update(unknown.to_list())
    return kernels.with_columns(
        kind=pl.when(pl.col("kind") == "kernel").then(by_name).otherwise("kind"),
        message_bytes=elements * size,
    )


@cache
def _table() -> _KernelNames:
    text = files("gpuprof.collectors.kineto").joinpath("kernel_names.toml").read_bytes()
    return msgspec.toml.decode(text, type=_KernelNames)
