"""Tables of claims: TOML files, some of them shipped here."""

import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from gpuprof.collectors.errors import CaptureError, problem_of
from gpuprof.collectors.files.source import whole_content
from gpuprof.roofline.claims.claim import COMMON, KEYS, TIMES, Claim, ClaimTable
from gpuprof.roofline.claims.work import ClaimError, check_form

# Reading TOML takes tens of times as much.
_LARGEST_BYTES = 1 << 20
# Where msgspec says that it is: "Expected `str`, got `int` - at `$.claim[0].gpu`".
_PLACE = re.compile(r"(?P<problem>.*?)(?: - at `\$(?:\.claim\[(?P<index>\d+)\])?\.?(?P<key>.*)`)?")


def shipped_tables() -> tuple[str, ...]:
    """Names of the tables in this folder."""
    folder = files("gpuprof.roofline.claims")
    return tuple(
        sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml"))
    )


def load_table(name_or_path: str) -> ClaimTable:
    """The table shipped under a name, or in a file.

    Raises `CaptureError`, which names the file, the claim and the key that is wrong.
    """
    if name_or_path in shipped_tables():
        content = files("gpuprof.roofline.claims").joinpath(f"{name_or_path}.toml")
        return _checked(name_or_path, content.read_bytes())
    try:
        stored = whole_content(
            Path(name_or_path), _LARGEST_BYTES, what="claims", remedy="cut it into several"
        )
    except CaptureError as error:
        if isinstance(error.__cause__, OSError):
            shipped = ", ".join(shipped_tables())
            raise CaptureError(
                name_or_path,
                error.problem,
                expected=f"a TOML file, or one of the shipped tables: {shipped}",
            ) from error
        raise
    return _checked(name_or_path, stored)


def _checked(where: str, content: bytes) -> ClaimTable:
    try:
        raw = msgspec.toml.decode(content)
    # ValueError: TOML's errors and invalid UTF-8. RecursionError: arrays in arrays without end.
    except (ValueError, RecursionError) as error:
        raise CaptureError(
            where, problem_of(error), expected="a table of claims (docs/bench.md)"
        ) from error
    try:
        table = msgspec.convert(raw, ClaimTable)
    except msgspec.ValidationError as error:
        raise _with_place(where, raw, str(error)) from error
    names = [claim.name for claim in table.claim]
    for index, claim in enumerate(table.claim):
        _check_claim(where, claim, raw["claim"][index], names, index)
    return table


def _check_claim(
    where: str, claim: Claim, stated: Mapping[str, object], names: list[str], index: int
) -> None:
    try:
        _check_keys(claim, stated)
        _check_references(claim, names, index)
        check_form(claim)
    except ClaimError as error:
        place = f"{_place(index, claim.name)}, {error.key}"
        raise CaptureError(where, str(error), place=place) from error


def _with_place(where: str, raw: Any, message: str) -> CaptureError:
    """What msgspec found wrong with `raw`, with the claim's name in place of the path."""
    match = _PLACE.fullmatch(message)
    assert match is not None
    places = [match["key"] or ""]
    if match["index"] is not None:
        claim = raw["claim"][int(match["index"])]
        name = claim.get("name") if isinstance(claim, dict) else None
        places.insert(0, _place(int(match["index"]), name))
    place = ", ".join(filter(None, places))
    expected = "a table of claims (docs/bench.md)"
    return CaptureError(where, match["problem"], place=place, expected=expected)


def _place(index: int, name: object) -> str:
    """ "claim 3 (gate)"; names that do not print are written out."""
    number = f"claim {index + 1}"
    if not isinstance(name, str) or not name:
        return number
    return f"{number} ({name if name.isprintable() else ascii(name)})"


def _check_keys(claim: Claim, stated: Mapping[str, object]) -> None:
    """Each key must belong to the claim's kind; a key that is ignored would mislead."""
    keys = KEYS[claim.kind]
    allowed = (*COMMON, *keys.needed, *keys.optional, *keys.figures)
    for key in stated:
        if key not in allowed:
            own = ", ".join((*keys.needed, *keys.optional, *keys.figures))
            raise ClaimError(key, f"{claim.kind} has no such key, but {own}")
    times = [key for key in TIMES if key in stated]
    if len(times) > 1:
        raise ClaimError(times[1], f"{times[0]} is stated too")


def _check_references(claim: Claim, names: list[str], index: int) -> None:
    if names.count(claim.name) > 1:
        raise ClaimError("name", "two claims have this name")
    references = [("parts", part) for part in claim.parts]
    references += [(key, other) for key in ("of", "same_as") if (other := getattr(claim, key))]
    for key, other in references:
        if other not in names[:index]:
            raise ClaimError(key, f"no claim {other!r} stands before it")
