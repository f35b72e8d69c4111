"""Tables of claims: TOML files, some of them shipped here."""

from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec

from gpuprof.collectors.errors import CaptureError

Kind = Literal["gemm", "attention", "all-reduce", "weights", "sum", "throughput", "unsized"]


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One claim. What is claimed is one or more of the fields from `time_us` on.

    Kinds and what they need:
    gemm: `size` MxNxK. attention: `size` BxHxSxD, forward, `causal` or not. all-reduce: `size` as
    a number of bytes, `ranks`. weights: `parameters`, all of them read once. sum: `parts`, names of
    other claims, `times` over. throughput: `tokens` processed in the time of the claim `of`.
    unsized: its work is not known; `of` is the claim it is compared with.
    """

    name: str
    # Words of a row of the device table: "A100", "H100 SXM".
    gpu: str
    kind: Kind
    size: str = ""
    dtype: str = ""
    causal: bool = False
    ranks: int | None = None
    parameters: int | None = None
    parts: tuple[str, ...] = ()
    times: int = 1
    tokens: int | None = None
    of: str = ""
    # The name of a claim that says the same of the same work.
    same_as: str = ""
    time_us: float | None = None
    tflops: float | None = None
    bus_gb_per_s: float | None = None
    # Share of the dense peak, in percent.
    mfu_percent: float | None = None
    tokens_per_s: float | None = None


class ClaimTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Claims of one source."""

    source: str
    claim: tuple[Claim, ...]


def shipped_tables() -> tuple[str, ...]:
    """Names of the tables in this folder."""
    folder = files("gpuprof.roofline.claims")
    return tuple(
        sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml"))
    )


def load_table(name_or_path: str) -> ClaimTable:
    """The table shipped under a name, or in a file. Raises `CaptureError` with what is wrong."""
    if name_or_path in shipped_tables():
        content = files("gpuprof.roofline.claims").joinpath(f"{name_or_path}.toml")
        return _checked(name_or_path, content.read_bytes())
    try:
        return _checked(name_or_path, Path(name_or_path).read_bytes())
    except OSError as error:
        raise CaptureError(
            name_or_path,
            error.strerror or str(error),
            expected=f"a TOML file, or one of the shipped tables: {', '.join(shipped_tables())}",
        ) from error


def _checked(where: str, content: bytes) -> ClaimTable:
    try:
        table = msgspec.toml.decode(content, type=ClaimTable)
    # ValueError: msgspec's errors, TOML's and invalid UTF-8.
    except ValueError as error:
        raise CaptureError(
            where, str(error), expected="a table of claims (docs/bench.md)"
        ) from error
    names = [claim.name for claim in table.claim]
    for position, claim in enumerate(table.claim, start=1):
        place = f"claim {position} ({claim.name})"
        if names.count(claim.name) > 1:
            raise CaptureError(where, "two claims have this name", place=place)
        for other in (*claim.parts, *filter(None, (claim.of, claim.same_as))):
            if other not in names[: position - 1]:
                raise CaptureError(where, f"no claim {other!r} stands before it", place=place)
    return table
