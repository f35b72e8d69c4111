"""Collectives: no operations, and the bytes of this rank's own buffers in its memory.

The input is read once and the output written once, whatever the algorithm sends over the links in
between: that is another resource (`gpuprof.roofline.work.transfers`). torch records a collective's
input under record_param_comms; which collective it is, and mostly its dtype, only the kernel tells,
by the metadata that the profiler gave it (pytorch torch/csrc/distributed/c10d/ParamCommsUtils.hpp)
or by its name (NCCL src/device/generate.py).
"""

import re
from typing import Final

from gpuprof.roofline.bus_bandwidth import find_collective
from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.counting import bytes_for, copy_cost
from gpuprof.roofline.cost_models.registry import cost_model, register_composites
from gpuprof.roofline.dtypes import DType, named, parse

# As NCCL writes the type into the names of kernels that reduce. Others move bytes.
_DTYPES: Final = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "i64": "int64",
    "u64": "uint64",
    "i32": "int32",
    "u32": "uint32",
    "i8": "int8",
    "u8": "uint8",
}
_OF_ONE_SIZE: Final = ("all-reduce", "all-to-all", "broadcast", "reduce")
_UNKNOWN = "neither the kernel's name nor its metadata tells which collective it is"


def _dtype(call: OpCall, tensors: tuple[Tensor, ...]) -> DType | None:
    """The element type: as metadata tells it, or the kernels' names, or the tensors."""
    told = parse(call.collective_dtype) if call.collective_dtype else None
    parts = {part for name in call.kernels for part in re.split(r"[_(]", name) if part in _DTYPES}
    if told is None and len(parts) == 1:
        told = named(_DTYPES[parts.pop()])
    return told or _common_dtype(tensors) or call.list_dtype


@cost_model("record_param_comms")
def record_param_comms(call: OpCall) -> Cost | None:
    """(inputs, ..., world size last)."""
    found = find_collective(call.collective) if call.collective else None
    tensors = call.tensors(0)
    single = call.tensor(0)
    if tensors is None and single is not None:
        tensors = (single,)
    if found is None or not tensors:
        return copy_cost(None, None, _UNKNOWN)
    elements = sum(tensor.elements for tensor in tensors)
    dtype = _dtype(call, tensors)
    size = bytes_for(elements, dtype)
    if found.name in ("send", "receive"):
        return copy_cost(*((size, 0) if found.name == "send" else (0, size)))
    ranks = call.integer(len(call.arguments) - 1)
    written: int | None = None
    if found.name in _OF_ONE_SIZE:
        written = elements
    elif found.name == "all-gather" and ranks is not None:
        written = elements * ranks
    elif found.name == "reduce-scatter" and ranks:
        written = elements // ranks
    return copy_cost(size, bytes_for(written, dtype))


def _common_dtype(tensors: tuple[Tensor, ...]) -> DType | None:
    dtypes = {tensor.dtype for tensor in tensors}
    return dtypes.pop() if len(dtypes) == 1 else None


register_composites(
    "c10d::allreduce_",
    "c10d::allreduce_coalesced_",
    "c10d::allgather_",
    "c10d::_allgather_base_",
    "c10d::allgather_into_tensor_coalesced_",
    "c10d::reduce_scatter_",
    "c10d::_reduce_scatter_base_",
    "c10d::reduce_scatter_tensor_coalesced_",
    "c10d::broadcast_",
    "c10d::reduce_",
    "c10d::alltoall_",
    "c10d::alltoall_base_",
    "c10d::send",
    "c10d::recv_",
    "c10d::barrier",
    "_c10d_functional::all_reduce",
    "_c10d_functional::all_reduce_",
    "_c10d_functional::all_gather_into_tensor",
    "_c10d_functional::reduce_scatter_tensor",
    "_c10d_functional::all_to_all_single",
    "_c10d_functional::broadcast",
)
