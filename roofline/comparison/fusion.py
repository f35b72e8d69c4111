"""Kernels that a compiler made of several operators, against the kernels of those operators."""

import re
from collections.abc import Sequence

from gpuprof.roofline.comparison.result import KernelSide

# pytorch torch/_inductor/codegen/triton.py: triton_<kind>_fused_<operators>_<counter>; operators
# are joined by "_", which their own names hold too.
_FUSED = re.compile(r"^triton_[a-z]+_fused_(?P<operators>.+?)(?:_\d+)?$")

Group = tuple[list[KernelSide], list[KernelSide]]


def fused_groups(base: Sequence[KernelSide], head: Sequence[KernelSide]) -> list[Group]:
    """Groups of kernels of both sides that do the same operators, the smallest that hold together.

    A compiler's kernel belongs to each kernel of the other side whose operator is in its name.
    """
    links = [
        (one, other)
        for one in range(len(base))
        for other in range(len(head))
        if _does(base[one].name, head[other].op) or _does(head[other].name, base[one].op)
    ]
    # Groups are the connected parts of the graph of links.
    group_of: dict[tuple[str, int], int] = {}
    members: dict[int, set[tuple[str, int]]] = {}
    for one, other in links:
        joined = {("base", one), ("head", other)}
        for node in tuple(joined):
            if node in group_of:
                joined |= members.pop(group_of[node], set())
        label = len(group_of) + len(members) + max(members, default=0) + 1
        members[label] = joined
        group_of.update(dict.fromkeys(joined, label))
    return [
        (
            [base[index] for side, index in sorted(group) if side == "base"],
            [head[index] for side, index in sorted(group) if side == "head"],
        )
        for group in members.values()
    ]


def _does(kernel: str, op: str) -> bool:
    """Whether a compiler's `kernel` has the operator `op` (aten::mul) in its name."""
    fused = _FUSED.match(kernel)
    name = op.rpartition("::")[2].removesuffix("_")
    return bool(name) and fused is not None and f"_{name}_" in f"_{fused['operators']}_"
