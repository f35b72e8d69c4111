"""How many bytes an element of a collective has, by the name of its type.

The names are in `collective_dtypes.toml`, with their source.
"""

from functools import cache
from importlib.resources import files

import msgspec


class _Dtypes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    bytes: dict[str, int]
    names: dict[str, str]


def scalar_type_names() -> dict[str, str]:
    """The name that torch prints for a dtype, by the C++ type of "Input type"."""
    return _dtypes().names


def element_bytes() -> dict[str, int]:
    """Bytes of an element, by the name that torch prints for its dtype."""
    return _dtypes().bytes


@cache
def _dtypes() -> _Dtypes:
    text = files("gpuprof.collectors").joinpath("collective_dtypes.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Dtypes)
