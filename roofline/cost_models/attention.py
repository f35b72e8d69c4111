"""Scaled-dot-product attention: the operators that do it in one kernel.

Forward: 2 * B * H * pairs * (D_qk + D_v) operations, for the scores and for their product with the
values. Backward: 2 * B * H * pairs * (3 D_qk + 2 D_v), five products: the scores again (no backend
stores them), dQ, dK, dP and dV. H counts query heads: grouped queries share keys and values in
memory, not in arithmetic. `flops` counts the pairs that a causal mask or window keeps, exactly;
`full_attention_flops` counts queries * keys (PaLM appendix B, torch.utils.flop_counter), of a
sliding window queries * window: T is then the window in PaLM's 12 L H Q T. A mask given as a tensor
skips nothing. The softmax between the products, about 5 vector operations a pair against 4 D, is
not counted.

Source: Vaswani et al. 2017 (arXiv 1706.03762); Dao 2023 (2307.08691) for the backward's products.
"""

import math
from dataclasses import dataclass

from gpuprof.roofline.cost_models.attention_pairs import kept_pairs
from gpuprof.roofline.cost_models.attention_signatures import (
    AttentionSignature,
    attention_signatures,
)
from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.counting import bytes_for, bytes_of, gemm_flops, total
from gpuprof.roofline.cost_models.registry import cost_model, register_composites
from gpuprof.roofline.dtypes import named

_LENGTHS_UNKNOWN = "sequence lengths are not in the trace, only their sum and maximum"
_CAUSAL_UNKNOWN = "is_causal was not recorded"


@dataclass(frozen=True)
class _Problem:
    """Sizes of one call: `batch` sequences of the same lengths, `heads` query heads each."""

    batch: int
    heads: int
    queries: int
    keys: int
    key_size: int
    value_size: int
    rows: int
    # False where sequences of several lengths are packed: the pairs are then not known.
    lengths_known: bool
    # Key and value bytes where they stand in a cache of pages, of which only a part is read.
    cache_bytes: int | None = None
    in_pages: bool = False


def _problem(
    call: OpCall, where: AttentionSignature, query: Tensor, key: Tensor, value: Tensor
) -> _Problem | None:
    if where.pages is not None and call.has(where.pages):
        return _paged_problem(call, where, query, key, value)
    ranks = {len(query.shape), len(key.shape), len(value.shape)}
    if ranks == {3} and where.starts is not None:
        # Packed sequences: (total, heads, head size).
        packed = tuple((1, *tensor.shape) for tensor in (query, key, value))
    elif ranks == {4}:
        packed = (query.shape, key.shape, value.shape)
    else:
        return None
    sequence, head = (2, 1) if where.layout == "bhsd" and ranks == {4} else (1, 2)
    of_query, of_key, of_value = packed
    batch, queries, keys = of_query[0], of_query[sequence], of_key[sequence]
    known = not any(call.has(position) for position in where.unknown_if_present)
    starts = None if where.starts is None else call.tensor(where.starts)
    if starts is not None and where.maxima is not None and len(starts.shape) == 1:
        sequences = starts.shape[0] - 1
        longest = call.integer(where.maxima), call.integer(where.maxima + 1)
        if sequences > 1 and longest == (queries // sequences, keys // sequences):
            # The longest times their number is the total: all have that length.
            even = queries % sequences == 0 and keys % sequences == 0
            known, batch = known and even, sequences
            queries, keys = queries // sequences, keys // sequences
        elif sequences > 1:
            known = False
    return _Problem(
        batch=batch,
        heads=of_query[head],
        queries=queries,
        keys=keys,
        key_size=of_query[3],
        value_size=of_value[3],
        rows=math.prod(of_query[:3]),
        lengths_known=known,
    )


def _paged_problem(
    call: OpCall, where: AttentionSignature, query: Tensor, key: Tensor, value: Tensor
) -> _Problem | None:
    """Attention to a cache of pages (vLLM, flash-attn's block table).

    The lengths are known in a prefill without a prefix alone: where all sequences have as many
    queries as the longest has keys. With a causal mask none has fewer keys than queries.
    """
    if min(len(query.shape), len(key.shape), len(value.shape)) < 3:
        return None
    heads, key_size = query.shape[-2:]
    rows = math.prod(query.shape[:-2])
    starts = None if where.starts is None else call.tensor(where.starts)
    longest = None if where.maxima is None else call.integer(where.maxima)
    keys = None if where.maxima is None else call.integer(where.maxima + 1)
    sequences = 0 if starts is None else starts.elements - 1
    causal = where.causal is not None and call.flag(where.causal)
    known = bool(causal and longest and longest == keys and rows == sequences * longest)
    read = None
    if known:
        width = key.shape[-2] * key.shape[-1], value.shape[-2] * value.shape[-1]
        read = total(
            bytes_for(rows * each, tensor.dtype)
            for each, tensor in zip(width, (key, value), strict=True)
        )
    return _Problem(
        batch=sequences,
        heads=heads,
        queries=longest or 0,
        keys=keys or 0,
        key_size=key_size,
        value_size=value.shape[-1],
        rows=rows * heads,
        lengths_known=known,
        cache_bytes=read,
        in_pages=True,
    )


@dataclass(frozen=True)
class _Mask:
    """Which keys a query sees; None: as far as there are any."""

    causal: bool
    bottom_right: bool
    left: int | None
    right: int | None

    def kept(self, problem: _Problem) -> int:
        """Pairs in one head of one sequence."""
        return kept_pairs(
            problem.queries,
            problem.keys,
            causal=self.causal,
            bottom_right=self.bottom_right,
            window_left=self.left,
            window_right=self.right,
        )

    def in_full(self, problem: _Problem) -> int:
        """Pairs where every query sees all keys, or a whole sliding window of them."""
        right = 0 if self.causal else self.right
        if self.left is None or right is None:
            return problem.queries * problem.keys
        return problem.queries * min(problem.keys, self.left + 1 + right)


def _mask(call: OpCall, where: AttentionSignature) -> _Mask | None:
    """The mask of `call`; None where its kind is unknown."""
    bottom_right = where.bottom_right
    causal: bool | None = False
    if where.mask_type is not None:
        kind = call.integer(where.mask_type)
        causal = {0: False, 1: True, 2: True}.get(-1 if kind is None else kind)
        bottom_right = kind == 2
    elif where.causal is not None:
        # An argument beyond the recorded ones has its default, which is False everywhere.
        causal = False if where.causal >= len(call.arguments) else call.flag(where.causal)
    if causal is None:
        return None
    left = right = None
    if where.window is not None:
        left, right = (
            size if size is not None and size >= 0 else None
            for size in (call.integer(where.window), call.integer(where.window + 1))
        )
    return _Mask(causal, bottom_right, left, right)


def _cost(call: OpCall, where: AttentionSignature) -> Cost | None:
    query, key, value = (call.tensor(where.query + offset) for offset in range(3))
    if query is None or key is None or value is None:
        return None
    problem = _problem(call, where, query, key, value)
    if problem is None:
        return None
    if where.backward:
        per_pair = 2 * (3 * problem.key_size + 2 * problem.value_size)
    else:
        per_pair = 2 * (problem.key_size + problem.value_size)
    per_pair *= problem.batch * problem.heads
    assumptions: tuple[str, ...] = ()
    flops = full = None
    recomputed = 0
    if not problem.lengths_known:
        assumptions = (_LENGTHS_UNKNOWN,)
    else:
        mask = _mask(call, where)
        if mask is None:
            assumptions = (_CAUSAL_UNKNOWN,)
            full = problem.queries * problem.keys * per_pair
        else:
            pairs, in_full = mask.kept(problem), mask.in_full(problem)
            flops = gemm_flops(call, query.dtype, pairs * per_pair)
            if where.backward:
                recomputed = 2 * problem.batch * problem.heads * pairs * problem.key_size
            full = None if pairs == in_full else in_full * per_pair
    keys_and_values = _key_value_bytes(call, where, problem, key, value)
    inputs = total((bytes_of(query, _bias(call, where)), keys_and_values))
    read, written = _traffic(call, where, problem, (query, key, value), inputs)
    return Cost(
        flops=flops,
        bytes_read=read,
        bytes_written=written,
        assumptions=assumptions,
        full_attention_flops=full,
        recomputed_flops=recomputed,
        weight_bytes=0,
        key_value_bytes=keys_and_values,
    )


def _key_value_bytes(
    call: OpCall,
    where: AttentionSignature,
    problem: _Problem,
    key: Tensor,
    value: Tensor,
) -> int | None:
    """Of keys and values that are read; None where that is an unknown part of a cache."""
    if problem.in_pages:
        return problem.cache_bytes
    if any(call.has(position) for position in where.unknown_if_present):
        return None
    return bytes_of(key, value)


def _bias(call: OpCall, where: AttentionSignature) -> Tensor | None:
    return None if where.bias is None else call.tensor(where.bias)


def _traffic(
    call: OpCall,
    where: AttentionSignature,
    problem: _Problem,
    operands: tuple[Tensor, Tensor, Tensor],
    inputs: int | None,
) -> tuple[int | None, int | None]:
    """Bytes read and written; `inputs` are those read of queries, keys, values and bias."""
    query = operands[0]
    # Attention on 8-bit inputs writes a wider output of a dtype that is not recorded.
    narrow = query.dtype is not None and query.dtype.bits == 8
    output = None if narrow else bytes_for(problem.rows * problem.value_size, query.dtype)
    if where.saved is not None:
        saved = bytes_of(*(call.tensor(position) for position in where.saved))
        # The output's gradient has the output's shape; the gradients have their tensors'.
        gradients = total(bytes_for(tensor.elements, tensor.dtype) for tensor in operands)
        return total((inputs, saved, output)), gradients
    flag: bool | None
    if isinstance(where.log_sum_exp, bool):
        flag = where.log_sum_exp
    else:
        flag = call.flag(where.log_sum_exp)
    statistics = 0 if flag is False else bytes_for(problem.rows, named("float32"))
    return inputs, total((output, statistics))


for _signature in attention_signatures():

    @cost_model(*_signature.names, composite=_signature.composite)
    def _attention(call: OpCall, where: AttentionSignature = _signature) -> Cost | None:
        return _cost(call, where)


register_composites(
    "aten::_scaled_dot_product_attention_math", "aten::_native_multi_head_attention"
)
