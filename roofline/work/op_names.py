"""Which operators of a capture have a name of some kind: each distinct name is looked at once."""

from collections.abc import Callable, Iterable

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.autograd_nodes import NODE
from gpuprof.collectors.call_tree.op_subtrees import Booleans
from gpuprof.collectors.capture import Capture, once_a_capture
from gpuprof.roofline.work.names import op_names


def ops_named(capture: Capture, test: Callable[[pl.Series], Iterable[bool]]) -> Booleans:
    """Which rows of `ops` have a name that passes `test`, which gets the distinct names."""
    names = op_names(capture)
    return names.where(np.fromiter(test(names.texts), np.bool_, len(names.texts)))


def ops_matching(capture: Capture, pattern: str) -> Booleans:
    """Which rows of `ops` have a name in which the regular expression `pattern` is found."""
    return ops_named(capture, lambda names: names.str.contains(pattern))


@once_a_capture
def nodes_among_ops(capture: Capture) -> Booleans:
    """Which rows of `ops` are nodes of a backward pass."""
    return ops_matching(capture, NODE)
