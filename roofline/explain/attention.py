"""Which implementation scaled_dot_product_attention chose, and what kept it from the others.

The conditions are in `attention.toml`, those of torch 2.13; earlier versions have fewer. Whether
the program turned an implementation off (torch.nn.attention.sdpa_kernel) is not in a trace.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, TypeAlias

import msgspec

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.explanation_figures import Backend, Condition, Dispatch

OPERATOR: Final = "aten::scaled_dot_product_attention"
_SOURCE: Final = "pytorch aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (2.13)"
_SOURCE_ON_A_CPU: Final = "pytorch aten/src/ATen/native/transformers/sdp_utils_cpp.cpp (2.13)"
_ORDER: Final = (
    "torch tries flash, memory-efficient and math in this order; recent versions try cuDNN first "
    "on compute capability 9.0 and 10.x, with cuDNN above 9.15"
)
_OFF: Final = "whether the program turned one off (torch.nn.attention.sdpa_kernel) is not recorded"
# Positions in the operator's schema.
_MASK, _DROPOUT, _CAUSAL, _GROUPED = 3, 4, 5, 7


@dataclass(frozen=True)
class _Attention:
    """The recorded arguments of one call. None where one was not recorded."""

    query: Tensor
    key: Tensor
    value: Tensor
    # Whether there is one, and it.
    masked: bool
    mask: Tensor | None
    dropout: float | None
    causal: bool | None
    grouped: bool | None
    # (9, 0); None where the device is not known.
    capability: tuple[int, int] | None

    @property
    def operands(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.query, self.key, self.value

    def axis(self, axis: int) -> list[int]:
        """The sizes of the three operands along an axis; [] where they do not have it."""
        if any(len(each.shape) < 4 for each in self.operands):
            return []
        return [each.shape[axis] for each in self.operands]


class _BackendRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    operators: tuple[str, ...]
    fused_on_gpus: bool = False
    cpu: bool = False


class _ConditionRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    backends: tuple[str, ...]
    check: str
    text: str
    remedy: str
    source: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    backend: tuple[_BackendRow, ...]
    condition: tuple[_ConditionRow, ...]


# Whether it holds, None where that is not known; and what was recorded.
_Finding: TypeAlias = tuple[bool | None, str]
_CHECKS: dict[str, Callable[[_Attention], _Finding]] = {}


def attention_dispatch(
    call: OpCall | None, operators: Sequence[str], compute_capability: str | None
) -> Dispatch | None:
    """What ran of scaled_dot_product_attention, which called `operators`; None where that is open.

    `call` is that of scaled_dot_product_attention itself; None where its arguments were not
    recorded.
    """
    table = _table()
    ran = next((row for row in table.backend if set(row.operators) & set(operators)), None)
    if ran is None:
        return None
    others: tuple[Backend, ...] = ()
    notes: tuple[str, ...] = ()
    if not ran.cpu:
        attention = None if call is None else _attention(call, compute_capability)
        others = tuple(_backend(row.name, attention) for row in _fused_on_a_gpu() if row != ran)
        notes = (_ORDER, _OFF)
    source = _SOURCE_ON_A_CPU if ran.cpu else _SOURCE
    return Dispatch(operator=OPERATOR, ran=ran.name, others=others, notes=notes, source=source)


def _fused_on_a_gpu() -> tuple[_BackendRow, ...]:
    return tuple(row for row in _table().backend if row.fused_on_gpus)


def _backend(name: str, attention: _Attention | None) -> Backend:
    rows = [row for row in _table().condition if name in row.backends]
    if attention is None:
        return Backend(name=name, unknown=tuple(row.text for row in rows))
    violated, unknown = [], []
    for row in rows:
        holds, recorded = _CHECKS[row.check](attention)
        if holds is None:
            unknown.append(row.text)
        elif not holds:
            violated.append(Condition(row.text, recorded, row.remedy, row.source))
    return Backend(name=name, violated=tuple(violated), unknown=tuple(unknown))


def _attention(call: OpCall, compute_capability: str | None) -> _Attention | None:
    query, key, value = (call.tensor(position) for position in range(3))
    if query is None or key is None or value is None:
        return None
    return _Attention(
        query,
        key,
        value,
        call.has(_MASK),
        call.tensor(_MASK),
        call.number(_DROPOUT),
        call.flag(_CAUSAL),
        call.flag(_GROUPED),
        _version(compute_capability),
    )


def _version(compute_capability: str | None) -> tuple[int, int] | None:
    major, _, minor = (compute_capability or "").partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


@cache
def _table() -> _Table:
    text = files("gpuprof.roofline.explain").joinpath("attention.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table)


def _check(function: Callable[[_Attention], _Finding]) -> Callable[[_Attention], _Finding]:
    _CHECKS[function.__name__.removeprefix("_")] = function
    return function


def _shapes(attention: _Attention) -> str:
    return ", ".join("x".join(map(str, each.shape)) for each in attention.operands)


def _types(attention: _Attention) -> list[str | None]:
    return [None if each.dtype is None else each.dtype.name for each in attention.operands]


def _of_types(attention: _Attention, allowed: Sequence[str]) -> _Finding:
    types = _types(attention)
    if None in types:
        return None, ""
    holds: bool | None = all(each in allowed for each in types)
    if "bfloat16" in types and attention.capability is None:
        holds = None
    elif "bfloat16" in types and attention.capability is not None:
        holds = holds and attention.capability >= (8, 0)
    return holds, ", ".join(dict.fromkeys(each or "" for each in types))


@_check
def _four_axes(attention: _Attention) -> _Finding:
    return all(len(each.shape) == 4 for each in attention.operands), _shapes(attention)


@_check
def _sixteen_bits(attention: _Attention) -> _Finding:
    return _of_types(attention, ("float16", "bfloat16"))


@_check
def _efficient_types(attention: _Attention) -> _Finding:
    return _of_types(attention, ("float16", "bfloat16", "float32"))


@_check
def _one_type(attention: _Attention) -> _Finding:
    types = _types(attention)
    return (None if None in types else len(set(types)) == 1), ", ".join(str(t) for t in types)


@_check
def _no_mask(attention: _Attention) -> _Finding:
    shape = () if attention.mask is None else attention.mask.shape
    return not attention.masked, f"a mask of {'x'.join(map(str, shape)) or 'unknown shape'}"


@_check
def _mask_of_two_or_four_axes(attention: _Attention) -> _Finding:
    if not attention.masked:
        return True, ""
    heads, batches = attention.axis(1), attention.axis(0)
    if attention.mask is None or not heads:
        return None, ""
    shape = attention.mask.shape
    scores = (batches[0], heads[0], attention.query.shape[2], attention.key.shape[2])
    fits = len(shape) in (2, 4) and all(
        size in (1, whole) for size, whole in zip(shape[::-1], scores[::-1], strict=False)
    )
    return fits, "x".join(map(str, shape))


@_check
def _one_head_size(attention: _Attention) -> _Finding:
    sizes = {each.shape[-1] for each in attention.operands if each.shape}
    return len(sizes) == 1, ", ".join(map(str, sorted(sizes)))


@_check
def _head_size_up_to_256(attention: _Attention) -> _Finding:
    size = max((each.shape[-1] for each in attention.operands if each.shape), default=0)
    return size <= 256, str(size)


@_check
def _aligned_head_size(attention: _Attention) -> _Finding:
    query, key, value = (each.shape[-1] if each.shape else 0 for each in attention.operands)
    dtype, capability = attention.query.dtype, attention.capability
    recorded = ", ".join(map(str, (query, key, value)))
    if query != key or 0 in (query, value):
        return False, recorded
    if dtype is None or capability is None:
        return (True if query % 8 == value % 8 == 0 else None), recorded
    unit = _alignment(half=dtype.bits == 16, capability=capability)
    return query % unit == value % unit == 0, recorded


def _alignment(*, half: bool, capability: tuple[int, int]) -> int:
    """torch's minimum_gemm_alignment."""
    unit = 4 if capability >= (8, 0) else 1
    if capability >= (8, 0) or (capability >= (7, 0) and half):
        unit = max(unit, 8 if half else 4)
    return unit


@_check
def _head_size_of_cudnn(attention: _Attention) -> _Finding:
    sizes = attention.axis(3)
    largest = max(sizes, default=0)
    # Up to 256 newer versions take, on some devices.
    holds = True if largest <= 128 else None if largest <= 256 else False
    return holds, str(largest)


@_check
def _head_size_of_eights(attention: _Attention) -> _Finding:
    sizes = [each.shape[-1] for each in attention.operands if each.shape]
    return all(size % 8 == 0 for size in sizes), ", ".join(map(str, sizes))


@_check
def _causal_is_square(attention: _Attention) -> _Finding:
    lengths = attention.axis(2)
    if not lengths or lengths[0] == lengths[1] or attention.causal is False:
        return True, ""
    recorded = f"{lengths[0]} queries, {lengths[1]} keys"
    return (None if attention.causal is None else False), recorded


@_check
def _last_axis_contiguous(attention: _Attention) -> _Finding:
    strides = [each.strides[-1] if each.strides else None for each in attention.operands]
    if any(each not in (None, 1) for each in strides):
        return False, f"strides {', '.join(str(each) for each in strides)}"
    return (None if None in strides else True), ""


@_check
def _heads_agree(attention: _Attention) -> _Finding:
    heads = attention.axis(1)
    if not heads or len(set(heads)) == 1:
        return True, ""
    recorded = f"{heads[0]} of the query, {heads[1]} of the key, {heads[2]} of the value"
    if attention.grouped is None:
        return None, recorded
    divides = bool(heads[1]) and heads[1] == heads[2] and heads[0] % heads[1] == 0
    return attention.grouped and divides, recorded


@_check
def _equal_heads(attention: _Attention) -> _Finding:
    heads = attention.axis(1)
    return len(set(heads)) <= 1, ", ".join(map(str, heads))


@_check
def _one_batch(attention: _Attention) -> _Finding:
    batches = attention.axis(0)
    return len(set(batches)) <= 1, ", ".join(map(str, batches))


@_check
def _not_empty(attention: _Attention) -> _Finding:
    return 0 not in attention.axis(2), _shapes(attention)


@_check
def _capability_8(attention: _Attention) -> _Finding:
    if attention.capability is None:
        return None, ""
    return attention.capability >= (8, 0), ".".join(map(str, attention.capability))


@_check
def _dropout_in_sixteenths(attention: _Attention) -> _Finding:
    if attention.dropout is None:
        return None, ""
    return (attention.dropout * 16).is_integer(), f"{attention.dropout:g}"


@_check
def _several_keys(attention: _Attention) -> _Finding:
    keys = attention.axis(2)
    return not keys or keys[1] != 1, "1 key"
