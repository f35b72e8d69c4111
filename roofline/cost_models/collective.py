"""Collectives: no operations, and the bytes of this rank's own buffers in its memory.

The input is read once and the output written once, whatever the algorithm sends over the links in
between: that is another resource (`gpuprof.roofline.work.transfers`). torch records a collective's
input under record_param_comms; which collective it is, and mostly its dtype, the kernel tells, by
the metadata that the profiler gave it (pytorch torch/csrc/distributed/c10d/ParamCommsUtils.hpp) or
by its name (NCCL src/device/generate.py). Where it has no metadata, the operator of c10d above it
tells, and of collectives from one tensor to another both of them (torch/csrc/distributed/c10d/
Ops.cpp): NCCL runs all of a group call in one kernel, named after one of them.
"""

import re
from typing import Final

from gpuprof.roofline.bus_bandwidth import (
    Collective,
    collectives_by_operator,
    find_collective,
)
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
_UNKNOWN = "neither the kernel's name nor its metadata tells which collective it is"
_UNRECORDED = "the trace did not record the tensors"
_FROM_ONE_TO_ANOTHER: Final = (
    "c10d::_allgather_base_",
    "c10d::_reduce_scatter_base_",
    "c10d::alltoall_base_",
)


def _dtype(call: OpCall, tensors: tuple[Tensor, ...]) -> DType | None:
    """The element type: as metadata tells it, or the kernels' names, or the tensors."""
    told = parse(call.collective_dtype) if call.collective_dtype else None
    parts = {part for name in call.kernels for part in re.split(r"[_(]", name) if part in _DTYPES}
    if told is None and len(parts) == 1:
        told = named(_DTYPES[parts.pop()])
    return told or _common_dtype(tensors) or call.list_dtype


def named_collective(call: OpCall) -> Collective | None:
    """The collective of a record_param_comms: as its kernel tells it, or the operator above."""
    if call.collective:
        return find_collective(call.collective)
    return None if call.caller is None else called_collective(call.caller)


def called_collective(call: OpCall) -> Collective | None:
    """The collective that an operator is named after; None where it is no collective."""
    found = find_collective(call.name.rpartition("::")[2])
    if found is not None and found.name == "all-to-all" and _is_uneven(call):
        return find_collective("alltoallv")
    return found


def _is_uneven(call: OpCall) -> bool:
    output, source = call.tensor(0), call.tensor(1)
    return None not in (output, source) and output != source


@cost_model("record_param_comms")
def record_param_comms(call: OpCall) -> Cost | None:
    """(inputs, ..., world size last)."""
    if not call.collective and call.caller is not None and call.caller.name in _FROM_ONE_TO_ANOTHER:
        return from_one_tensor_to_another(call.caller)
    found = named_collective(call)
    tensors = call.tensors(0)
    single = call.tensor(0)
    if tensors is None and single is not None:
        tensors = (single,)
    if found is None or not tensors:
        return copy_cost(None, None, _UNKNOWN if found is None else _UNRECORDED)
    elements = sum(tensor.elements for tensor in tensors)
    dtype = _dtype(call, tensors)
    size = bytes_for(elements, dtype)
    if found.name in ("send", "receive"):
        return copy_cost(*((size, 0) if found.name == "send" else (0, size)))
    ranks = call.integer(len(call.arguments) - 1)
    return copy_cost(size, bytes_for(found.output_elements(elements, ranks), dtype))


@cost_model(*collectives_by_operator())
def launched_alone(call: OpCall) -> Cost | None:
    """(input, ...), (handle, input, ...) or (symmetric buffer, input, ...), with out or without.

    Its tensors in symmetric memory are this rank's own; who else is in the group is not recorded.
    """
    collective = collectives_by_operator()[call.name]
    first, second = call.tensor(0), call.tensor(1)
    read = (second or first) if collective.name == "all-reduce" else first
    if read is None:
        return None
    written = read
    if collective.name != "all-reduce":
        written = next(iter(call.tensors_after(0)), read)
    return copy_cost(read.bytes, written.bytes)


@cost_model(*_FROM_ONE_TO_ANOTHER, composite=True)
def from_one_tensor_to_another(call: OpCall) -> Cost | None:
    """(output, input, ...), where no record_param_comms stands below it, as in torch 1.13."""
    output, source = call.tensor(0), call.tensor(1)
    if output is None or source is None:
        return None
    return copy_cost(source.bytes, output.bytes)


@cost_model(
    *("c10d::allreduce_", "c10d::allreduce_coalesced_", "c10d::broadcast_", "c10d::reduce_"),
    composite=True,
)
def in_place(call: OpCall) -> Cost:
    """(tensors, ...), where no record_param_comms stands below it: gloo writes none."""
    size = _size_of_list(call)
    return _of_buffers(size, size)


@cost_model("c10d::send", composite=True)
def sent(call: OpCall) -> Cost:
    """(tensors, ...), as `in_place`."""
    return _of_buffers(_size_of_list(call), 0)


@cost_model("c10d::recv_", "c10d::recv_any_source_", composite=True)
def received(call: OpCall) -> Cost:
    """(tensors, ...), as `in_place`."""
    return _of_buffers(0, _size_of_list(call))


@cost_model(
    "c10d::allgather_",
    "c10d::allgather_coalesced_",
    "c10d::allgather_into_tensor_coalesced_",
    "c10d::alltoall_",
    "c10d::barrier",
    "c10d::gather_",
    "c10d::reduce_scatter_",
    "c10d::reduce_scatter_tensor_coalesced_",
    "c10d::scatter_",
    composite=True,
)
def of_lists_of_lists(call: OpCall) -> Cost:
    """Its tensors stand in lists of lists, which no trace records; as `in_place`."""
    return _of_buffers(None, None)


def _of_buffers(read: int | None, written: int | None) -> Cost:
    return copy_cost(read, written, *(_UNRECORDED,) * (None in (read, written)))


def _size_of_list(call: OpCall) -> int | None:
    tensors = call.tensors(0)
    if not tensors:
        return None
    return bytes_for(sum(tensor.elements for tensor in tensors), _dtype(call, tensors))


def _common_dtype(tensors: tuple[Tensor, ...]) -> DType | None:
    dtypes = {tensor.dtype for tensor in tensors}
    return dtypes.pop() if len(dtypes) == 1 else None


register_composites(
    "_c10d_functional::all_reduce",
    "_c10d_functional::all_reduce_",
    "_c10d_functional::all_reduce_coalesced",
    "_c10d_functional::all_reduce_coalesced_",
    "_c10d_functional::all_gather_into_tensor",
    "_c10d_functional::all_gather_into_tensor_coalesced",
    "_c10d_functional::all_gather_into_tensor_out",
    "_c10d_functional::reduce_scatter_tensor",
    "_c10d_functional::reduce_scatter_tensor_coalesced",
    "_c10d_functional::reduce_scatter_tensor_out",
    "_c10d_functional::all_to_all_single",
    "_c10d_functional::broadcast",
    "_c10d_functional::broadcast_",
    "_c10d_functional::batch_p2p_ops",
    "_c10d_functional::isend",
    "_c10d_functional::irecv",
    # FSDP2, around its collectives (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py).
    "fsdp::all_gather_copy_in",
    "fsdp::chunk_cat",
    "fsdp::split_with_sizes_copy",
    "symm_mem::_low_contention_all_gather",
    "symm_mem::_low_contention_reduce_scatter",
    "symm_mem::fused_all_gather_matmul",
    "symm_mem::fused_all_gather_scaled_matmul",
    "symm_mem::fused_matmul_reduce_scatter",
    "symm_mem::fused_scaled_matmul_reduce_scatter",
    "vllm::all_reduce",
    "vllm::all_gather",
    "vllm::reduce_scatter",
)
