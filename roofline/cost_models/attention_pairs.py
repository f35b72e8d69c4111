"""How many (query, key) pairs an attention mask keeps, exactly."""


def kept_pairs(
    queries: int,
    keys: int,
    *,
    causal: bool = False,
    bottom_right: bool = False,
    window_left: int | None = None,
    window_right: int | None = None,
) -> int:
    """Pairs of one head of one sequence that enter the softmax.

    Query i sees keys from i + shift - window_left to i + shift + window_right, where shift is
    keys - queries if the mask is aligned at the bottom right (flash-attn: the last query sees the
    last key) and 0 if at the top left (torch's `is_causal`). Causal is window_right = 0. A None
    window is open. For queries = keys = S causal keeps S (S + 1) / 2.
    """
    shift = keys - queries if bottom_right else 0
    right = 0 if causal else window_right
    ends = queries * keys if right is None else _clamped_sum(queries, shift + right + 1, keys)
    starts = 0 if window_left is None else _clamped_sum(queries, shift - window_left, keys)
    return max(0, ends - starts)


def _clamped_sum(count: int, first: int, top: int) -> int:
    """Sum of min(max(first + i, 0), top) for i in range(count)."""
    below = min(max(-first, 0), count)
    above = min(max(count - max(top - first, 0), 0), count - below)
    between = count - below - above
    start = first + below
    return between * start + between * (between - 1) // 2 + above * top
