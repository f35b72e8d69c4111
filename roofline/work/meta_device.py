"""Programs on torch's meta device: their operators work out shapes and compute nothing."""

from typing import Final

import polars as pl

from gpuprof.collectors.call_tree.cpu_compiling import compiling
from gpuprof.collectors.call_tree.op_subtrees import subtrees
from gpuprof.collectors.capture import Capture

# A Python reference of an operator: on the meta device it calls nothing that computes
# (pytorch torch/_prims/__init__.py).
_REFERENCE: Final = "prims::"
# What a matrix product of a CPU does first (pytorch aten/src/ATen/native/LinearAlgebra.cpp).
_REAL_PRODUCT: Final = "aten::resolve_conj"


def computes_nothing(capture: Capture) -> bool:
    """Whether the operators of a one-rank capture ran on the meta device.

    The process says so, or its operators are references that call nothing; a product that touched
    its operands shows that something was computed after all.
    """
    info = capture.processes[0]
    devices = info.fingerprint.devices
    on_gpu = info.device < len(devices) and devices[info.device].kind != "cpu"
    names = capture.ops["name"]
    if on_gpu or (names == _REAL_PRODUCT).any():
        return False
    return info.only_meta_tensors or _has_empty_references(capture)


def _has_empty_references(capture: Capture) -> bool:
    named = capture.ops["name"].str.starts_with(_REFERENCE).to_numpy()
    if named.any():
        named &= ~compiling(capture.ops, subtrees(capture.ops))
    references = capture.ops["op_id"].filter(pl.Series(named))
    if references.is_empty():
        return False
    work = capture.ops.filter(pl.col("op_id").is_in(capture.kernels["op_id"].implode()))
    return not work["parent_id"].is_in(references.implode()).any()
