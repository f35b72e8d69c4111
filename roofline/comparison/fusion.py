"""Kernels that a compiler made of several operators, against the kernels of those operators."""

import re
from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gpuprof.roofline.comparison.kernel_changes import KernelSide

# pytorch torch/_inductor/codegen/triton.py: triton_<kind>_fused_<operators>_<counter>; operators
# are joined by "_", which their own names hold too.
_FUSED = re.compile(r"^triton_[a-z]+_fused_(?P<operators>.+?)(?:_\d+)?$")

FusionGroup = tuple[list[KernelSide], list[KernelSide]]


def fused_groups(base: Sequence[KernelSide], head: Sequence[KernelSide]) -> list[FusionGroup]:
    """Groups of kernels of both sides that do the same operators, the smallest that hold together.

    A compiler's kernel belongs to each kernel of the other side whose operator is in its name.
    """
    links = _links(base, head) + [(one, other) for other, one in _links(head, base)]
    if not links:
        return []
    # Groups are the connected parts of the graph of links.
    rows = np.array([one for one, _ in links], dtype=np.intp)
    columns = np.array([len(base) + other for _, other in links], dtype=np.intp)
    nodes = len(base) + len(head)
    graph = coo_array((np.ones(len(links)), (rows, columns)), shape=(nodes, nodes))
    _, labels = connected_components(graph, directed=False)
    groups: dict[int, FusionGroup] = {}
    for node in sorted({*rows.tolist(), *columns.tolist()}):
        ones, others = groups.setdefault(int(labels[node]), ([], []))
        if node < len(base):
            ones.append(base[node])
        else:
            others.append(head[node - len(base)])
    return list(groups.values())


def _links(fused: Sequence[KernelSide], plain: Sequence[KernelSide]) -> list[tuple[int, int]]:
    """Pairs of a compiler's kernel and a kernel whose operator (aten::mul) is in its name."""
    operators: dict[str, list[int]] = {}
    for index, kernel in enumerate(plain):
        if name := kernel.op.rpartition("::")[2].removesuffix("_"):
            operators.setdefault(f"_{name}_", []).append(index)
    links = []
    for index, kernel in enumerate(fused):
        if found := _FUSED.match(kernel.name):
            text = f"_{found['operators']}_"
            named = [ones for name, ones in operators.items() if name in text]
            links += [(index, one) for ones in named for one in ones]
    return links
