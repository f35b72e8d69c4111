"""The arguments of Triton kernels, from the source that torch.compile left here.

A trace names the file of each kernel that inductor generated but not its arguments, whose names
tell what the kernel writes: in_out_ptr0, in_ptr0, out_ptr0. How often the source loads from each
bounds how much of a tensor it reads: of a slice the trace shows the whole. A program's files are
there while it runs and mostly after; a trace from another machine has none.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

# The definition of the kernel; compile-time arguments carry an annotation.
_DEFINITION: Final = re.compile(r"^def (triton_\w+)\(([^)]*)\):", re.MULTILINE)
_ACCESS: Final = re.compile(r"\btl\.(load|store|atomic_add)\((\w+)")
# Generated sources have some tens of kilobytes; a trace may name any other file.
_MOST_BYTES: Final = 4 << 20


def with_arguments(ops: pl.DataFrame) -> pl.DataFrame:
    """`ops` with argument_names and argument_accesses in place of kernel_file.

    Both are JSON lists, null where not known.
    """
    if ops["kernel_file"].is_null().all():
        return ops.drop("kernel_file")
    arguments = {
        (file, kernel): _arguments(Path(file), kernel)
        for file, kernel in ops.filter(pl.col("kernel_file").is_not_null())
        .select("kernel_file", "name")
        .unique()
        .iter_rows()
    }
    columns = ("kernel_file", "name", "argument_names", "argument_accesses")
    table = pl.DataFrame(
        [(*key, *values) for key, values in arguments.items()],
        schema=dict.fromkeys(columns, pl.String),
        orient="row",
    )
    joined = ops.join(table, on=("kernel_file", "name"), how="left", maintain_order="left")
    return joined.drop("kernel_file")


def _arguments(file: Path, kernel: str) -> tuple[str | None, str | None]:
    """Names of the run-time arguments of `kernel` in their order, and accesses to each.

    None where `file` does not define it.
    """
    source = _source(file)
    definitions = [] if source is None else list(_DEFINITION.finditer(source))
    for index, found in enumerate(definitions):
        if source is not None and found[1] == kernel:
            end = definitions[index + 1].start() if index + 1 < len(definitions) else len(source)
            each = (argument.strip() for argument in found[2].split(","))
            names = [name for name in each if name and ":" not in name]
            accesses = Counter(
                match.groups() for match in _ACCESS.finditer(source, found.end(), end)
            )
            # What is both read and written is so at the same places.
            counts = [
                max(accesses["load", name], accesses["store", name] + accesses["atomic_add", name])
                for name in names
            ]
            return msgspec.json.encode(names).decode(), msgspec.json.encode(counts).decode()
    return None, None


def _source(file: Path) -> str | None:
    if file.suffix != ".py":
        return None
    try:
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            return None
        return file.read_text(errors="replace")
    except (OSError, ValueError):
        # Not ours to read, or no path: a NUL in it.
        return None
