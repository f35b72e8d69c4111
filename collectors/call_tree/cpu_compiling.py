"""What torch.compile does while it compiles: traces with tensors of shapes alone, writes code."""

from typing import Final

import polars as pl

from gpuprof.collectors.call_tree.op_subtrees import Booleans, Subtrees

# dynamo_timed of pytorch torch/_dynamo/utils.py puts these around each part of it.
_TIMED: Final = " (dynamo_timed)"
# Around those it puts ranges by names without a namespace, which operators have. What was compiled
# has none either, and may compile its backward pass when that runs first.
_NAMESPACE: Final = "::"
_COMPILED: Final = r"^(?:Torch-Compiled Region|CompiledFunction(?:Backward)?$)"


def compiling(ops: pl.DataFrame, trees: Subtrees) -> Booleans:
    """Which rows of `ops` are part of a compilation."""
    names = ops["name"]
    timed: Booleans = names.str.ends_with(_TIMED).to_numpy()
    if not timed.any():
        return timed
    operators = names.str.contains(_NAMESPACE, literal=True) | names.str.contains(_COMPILED)
    around = trees.with_any_below(timed) & ~operators.to_numpy()
    result: Booleans = timed | trees.below_any(timed) | around
    return result
