"""Which operators of a capture have a name of some kind: each distinct name is looked at once."""

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import polars as pl

from gpuprof.collectors.call_tree.autograd_nodes import NODE
from gpuprof.collectors.call_tree.op_subtrees import Booleans
from gpuprof.collectors.capture import Capture, once_a_capture


def ops_named(capture: Capture, test: Callable[[pl.Series], Iterable[bool]]) -> Booleans:
    """Which rows of `ops` have a name that passes `test`, which gets the distinct names."""
    codes, numbers, names = _coded(capture)
    passes = np.zeros(int(numbers.max(initial=0)) + 1, np.bool_)
    passes[numbers] = np.fromiter(test(names), np.bool_, len(names))
    found: Booleans = passes[codes]
    return found


def ops_matching(capture: Capture, pattern: str) -> Booleans:
    """Which rows of `ops` have a name in which the regular expression `pattern` is found."""
    return ops_named(capture, lambda names: names.str.contains(pattern))


@once_a_capture
def nodes_among_ops(capture: Capture) -> Booleans:
    """Which rows of `ops` are nodes of a backward pass."""
    return ops_matching(capture, NODE)


@once_a_capture
def _coded(
    capture: Capture,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], pl.Series]:
    """A number for the name of each row of `ops`; the different numbers, and their names."""
    coded = capture.ops["name"].cast(pl.Categorical)
    distinct = coded.unique()
    numbers = distinct.to_physical().to_numpy()
    return coded.to_physical().to_numpy(), numbers, distinct.cast(pl.String)
