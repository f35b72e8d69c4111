"""Names of the arguments of Triton kernels, from the source that torch.compile left here.

A trace names the file of each kernel that inductor generated but not its arguments, whose names
tell what the kernel writes: in_out_ptr0, in_ptr0, out_ptr0. A program's files are there while it
runs and mostly after; a trace from another machine has none.
"""

import re
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

# The definition of the kernel; compile-time arguments carry an annotation.
_DEFINITION: Final = re.compile(r"^def (triton_\w+)\(([^)]*)\):", re.MULTILINE)
# Generated sources have some tens of kilobytes; a trace may name any other file.
_MOST_BYTES: Final = 4 << 20


def with_argument_names(ops: pl.DataFrame) -> pl.DataFrame:
    """`ops` with argument_names in place of kernel_file: a JSON list, null where not known."""
    if ops["kernel_file"].is_null().all():
        return ops.drop("kernel_file")
    names = {
        (file, kernel): _argument_names(Path(file), kernel)
        for file, kernel in ops.filter(pl.col("kernel_file").is_not_null())
        .select("kernel_file", "name")
        .unique()
        .iter_rows()
    }
    table = pl.DataFrame(
        {
            "kernel_file": [file for file, _ in names],
            "name": [kernel for _, kernel in names],
            "argument_names": list(names.values()),
        },
        schema=dict.fromkeys(("kernel_file", "name", "argument_names"), pl.String),
    )
    joined = ops.join(table, on=("kernel_file", "name"), how="left", maintain_order="left")
    return joined.drop("kernel_file")


def _argument_names(file: Path, kernel: str) -> str | None:
    """The run-time arguments of `kernel` in their order, where `file` defines it."""
    if file.suffix != ".py":
        return None
    try:
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            return None
        source = file.read_text(errors="replace")
    except (OSError, ValueError):
        # Not ours to read, or no path: a NUL in it.
        return None
    for found, arguments in _DEFINITION.findall(source):
        if found == kernel:
            each = (argument.strip() for argument in arguments.split(","))
            return msgspec.json.encode([name for name in each if name and ":" not in name]).decode()
    return None
