"""The nodes of the CUDA graph that the current stream is capturing, asked of the driver.

torch's profiler records the calls that make nodes, and on CUDA not what kernel each launches. The
driver tells that of the unfinished graph, which may be read while it is captured
(cuStreamGetCaptureInfo: all operations but destroying it and removing nodes are permitted).
"""

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Final

import torch

from gpuprof.collectors.captured_graph import GraphNode
from gpuprof.collectors.mangled_names import demangled

_SUCCESS: Final = 0
# cuda.h: CUstreamCaptureStatus, CUgraphNodeType.
_CAPTURING: Final = 1
_KERNEL: Final = 0
_KINDS: Final = {_KERNEL: "kernel", 1: "memcpy", 2: "memset"}


class _KernelParameters(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2; of these func is null where kern is given."""

    _fields_ = (
        ("func", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_memory", c_uint),
        ("kernel_parameters", c_void_p),
        ("extra", c_void_p),
        ("kern", c_void_p),
        ("context", c_void_p),
    )


def nodes_being_captured() -> tuple[GraphNode, ...] | None:
    """The nodes that the capture on the current stream has so far, in the order of their making.

    None where there is no capture, or the driver is older than CUDA 12.3 and does not name kernels.
    Nodes that are no device work, such as events, are left out.
    """
    if torch.version.cuda is None:
        return None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    stream: Any = torch.cuda.current_stream()
    try:
        return nodes_of_stream(driver, stream.cuda_stream)
    except AttributeError:
        # A driver without one of the functions.
        return None


def nodes_of_stream(driver: Any, stream: int) -> tuple[GraphNode, ...] | None:
    """`nodes_being_captured` of `stream`, by the functions of `driver`.

    Raises `AttributeError` where the driver lacks one.
    """
    status, graph, count = c_int(), c_void_p(), c_size_t()
    answer = driver.cuStreamGetCaptureInfo_v2(
        c_void_p(stream), byref(status), byref(c_uint64()), byref(graph), None, None
    )
    if answer != _SUCCESS or status.value != _CAPTURING:
        return None
    if driver.cuGraphGetNodes(graph, None, byref(count)) != _SUCCESS:
        return None
    nodes = (c_void_p * count.value)()
    if count.value and driver.cuGraphGetNodes(graph, nodes, byref(count)) != _SUCCESS:
        return None
    names: dict[tuple[str, int], str | None] = {}
    found = []
    for node in filter(None, nodes[: count.value]):
        kind = c_int()
        if driver.cuGraphNodeGetType(c_void_p(node), byref(kind)) != _SUCCESS:
            return None
        if kind.value == _KERNEL:
            found.append(_kernel(driver, node, names))
        elif kind.value in _KINDS:
            found.append(GraphNode(_KINDS[kind.value]))
    return tuple(found)


def _kernel(driver: Any, node: int, names: dict[tuple[str, int], str | None]) -> GraphNode:
    parameters = _KernelParameters()
    answer = driver.cuGraphKernelNodeGetParams_v2(c_void_p(node), byref(parameters))
    if answer != _SUCCESS:
        return GraphNode("kernel")
    asked = ("cuFuncGetName", parameters.func or 0)
    if not parameters.func:
        asked = ("cuKernelGetName", parameters.kern or 0)
    if asked not in names:
        names[asked] = _name(driver, *asked)
    grid, block = (tuple(sizes) for sizes in (parameters.grid, parameters.block))
    return GraphNode("kernel", names[asked], grid, block)


def _name(driver: Any, function: str, handle: int) -> str | None:
    name = c_char_p()
    if not handle or getattr(driver, function)(byref(name), c_void_p(handle)) != _SUCCESS:
        return None
    return None if name.value is None else demangled(name.value.decode(errors="replace"))
