"""Whether a call was made under autocast: arguments are recorded as they are before its casts."""

from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from gpuprof.roofline.cost_models.call import OpCall, Tensor

_LOWER: Final = ("bfloat16", "float16")
_FULL: Final = "float32"


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    operators: frozenset[str]


@cache
def _cast_operators() -> frozenset[str]:
    text = files("gpuprof.profiler.repro").joinpath("autocast.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).operators


def autocast_dtype(call: OpCall, casts: tuple[str, ...]) -> str | None:
    """The precision that autocast cast the arguments of `call` to; None where it was not on.

    `casts` are the types that the call itself cast to. Where it found the weights cast already, its
    arguments have two types, which these operators refuse otherwise.
    """
    if call.name.removeprefix("aten::") not in _cast_operators():
        return None
    tensors = [each for each in call.arguments if isinstance(each, Tensor)]
    types = {each.dtype.name for each in tensors if each.dtype is not None}
    lower = [one for one in _LOWER if one in casts or (one in types and _FULL in types)]
    return lower[0] if lower else None
