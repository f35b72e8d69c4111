"""Collectives: no operations, and the bytes of this rank's own buffers in its memory.

The input is read once and the output written once, whatever the algorithm sends over the links in
between. torch records a collective's input under record_param_comms; which collective it is, and
mostly its dtype, only the kernel tells, by the metadata that the profiler gave it (pytorch
torch/csrc/distributed/c10d/ParamCommsUtils.hpp) or by its name (NCCL src/device/generate.py).
"""

import re
from typing import Final

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.counting import bytes_for, copy_cost
from gpuprof.roofline.cost_models.registry import cost_model, register_composites
from gpuprof.roofline.dtypes import DType, named, parse

_KERNEL: Final = re.compile(
    r"nccl(?:Dev)?Kernel_(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce)_"
)
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
# The collectives whose output has the input's size, and those that are larger or smaller by the
# number of ranks. Without underscores and the ending of coalesced calls.
_SAME: Final = {"allreduce", "broadcast", "reduce", "alltoall"}
_LARGER: Final = {"allgather", "allgatherbase", "allgatherintotensor"}
_SMALLER: Final = {"reducescatter", "reducescatterbase", "reducescattertensor"}
_ONE_WAY: Final = {"send", "recv"}
_UNKNOWN = "neither the kernel's name nor its metadata tells which collective it is"


def _kernel(call: OpCall) -> tuple[str, DType | None]:
    """The collective and the dtype of this call's one kernel; "" where it is not known."""
    if call.collective:
        return call.collective, parse(call.collective_dtype)
    found = [(match[1], name) for name in call.kernels if (match := _KERNEL.match(name))]
    if len(found) != 1:
        return "", None
    collective, name = found[0]
    types = [named(_DTYPES[part]) for part in re.split(r"[_(]", name) if part in _DTYPES]
    return collective, types[0] if len(types) == 1 else None


@cost_model("record_param_comms")
def record_param_comms(call: OpCall) -> Cost | None:
    """(inputs, ..., world size last)."""
    collective, dtype = _kernel(call)
    collective = collective.lower().removesuffix("_coalesced").replace("_", "")
    tensors = call.tensors(0)
    single = call.tensor(0)
    if tensors is None and single is not None:
        tensors = (single,)
    if collective not in _SAME | _LARGER | _SMALLER | _ONE_WAY or not tensors:
        return copy_cost(None, None, _UNKNOWN)
    elements = sum(tensor.elements for tensor in tensors)
    if dtype is None:
        dtype = _common_dtype(tensors) or call.list_dtype
    if collective in _ONE_WAY:
        size = bytes_for(elements, dtype)
        return copy_cost(*((size, 0) if collective == "send" else (0, size)))
    ranks = call.integer(len(call.arguments) - 1)
    written: int | None = elements
    if collective in _LARGER:
        written = None if ranks is None else elements * ranks
    elif collective in _SMALLER:
        written = None if not ranks else elements // ranks
    return copy_cost(bytes_for(elements, dtype), bytes_for(written, dtype))


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
