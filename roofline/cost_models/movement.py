"""Copies, fills and concatenation, and the operators that only make views."""

import math
from functools import reduce

from gpuprof.roofline.cost_models.call import OpCall
from gpuprof.roofline.cost_models.cost import UNCOUNTED_RANDOM, Cost
from gpuprof.roofline.cost_models.counting import bytes_for, bytes_of, copy_cost
from gpuprof.roofline.cost_models.registry import cost_model, register_composites, register_views
from gpuprof.roofline.dtypes import DType, promote
from gpuprof.roofline.kernel_names.element_types import element_size


@cost_model("aten::copy_")
def copy(call: OpCall) -> Cost | None:
    """(self, src): a broadcast source is read once; dtypes may differ."""
    target, source = call.tensor(0), call.tensor(1)
    if target is None or source is None:
        return None
    return copy_cost(source.bytes, bytes_for(target.elements, target.dtype))


@cost_model("aten::fill_")
def fill(call: OpCall) -> Cost | None:
    """(self, value)."""
    target = call.tensor(0)
    return None if target is None else copy_cost(0, target.bytes)


@cost_model("aten::zero_")
def zero(call: OpCall) -> Cost | None:
    """(self): a memset, or a call of fill_."""
    return fill(call)


@cost_model(
    "aten::bernoulli_",
    "aten::uniform_",
    "aten::normal_",
    "aten::random_",
    "aten::exponential_",
    "aten::geometric_",
    "aten::log_normal_",
)
def random_fill(call: OpCall) -> Cost | None:
    """(self, ...), with bernoulli_'s probabilities where they are a tensor."""
    target = call.tensor(0)
    if target is None:
        return None
    read = bytes_of(call.tensor(1))
    return copy_cost(read, target.bytes, UNCOUNTED_RANDOM)


@cost_model("aten::arange", composite=True)
def arange(call: OpCall) -> Cost | None:
    """(start, end, step, out); the other overloads call this one."""
    start, end, step = (call.number(position) for position in range(3))
    output = call.tensor(3)
    if start is None or end is None or not step or output is None:
        return None
    elements = math.ceil((end - start) / step)
    return copy_cost(0, bytes_for(elements, output.dtype))


def _promoted(left: DType | None, right: DType | None) -> DType | None:
    return None if left is None or right is None else promote(left, right)


@cost_model("aten::cat")
def cat(call: OpCall) -> Cost | None:
    """(tensors, dim), or (out, tensors, dim) where the result is given.

    Without recorded types the element's size is in the kernel's name, or other tensors tell it.
    """
    tensors = call.tensors(0) or call.tensors(1)
    if not tensors:
        # Kineto leaves long lists empty.
        return copy_cost(None, None, "the trace did not record the tensors")
    recorded = [tensor.dtype for tensor in tensors]
    if all(recorded):
        result = reduce(_promoted, recorded)
        written = bytes_for(sum(tensor.elements for tensor in tensors), result)
        return copy_cost(bytes_of(*tensors), written)
    size, origin = element_size(call.kernels), "element size from the kernel's name"
    if size is None and call.list_dtype is not None:
        size = call.list_dtype.bytes_for(1)
        origin = "element type from other tensors of these shapes in the trace"
    if size is None:
        return copy_cost(None, None, "the trace records no dtype for a list of tensors")
    read = size * sum(tensor.distinct_elements for tensor in tensors)
    written = size * sum(tensor.elements for tensor in tensors)
    return copy_cost(read, written, origin)


@cost_model(
    "aten::flip", "aten::roll", "aten::tril", "aten::triu", "aten::tril_", "aten::triu_",
    "aten::native_channel_shuffle", "aten::pixel_unshuffle", "aten::rot90",
)  # fmt: skip
def rearrange(call: OpCall) -> Cost | None:
    """One tensor in, one of the same shape out."""
    source = call.tensor(0)
    if source is None:
        return None
    return copy_cost(source.bytes, bytes_for(source.elements, source.dtype))


@cost_model("aten::nonzero", "aten::masked_select")
def select_by_value(call: OpCall) -> Cost | None:
    """How much is written depends on the values."""
    source = call.tensor(0)
    if source is None:
        return None
    read = bytes_of(source, call.tensor(1))
    return copy_cost(read, None, "the number of selected elements is not in the trace")


@cost_model("aten::_local_scalar_dense")
def to_host(call: OpCall) -> Cost | None:
    """(self): one element goes to the host."""
    source = call.tensor(0)
    return None if source is None else copy_cost(source.bytes, source.bytes)


register_composites(
    "aten::to",
    "aten::_to_copy",
    "aten::type_as",
    "aten::clone",
    "aten::contiguous",
    "aten::reshape",
    "aten::flatten",
    "aten::stack",
    "aten::hstack",
    "aten::vstack",
    "aten::concat",
    "aten::concatenate",
    "aten::repeat",
    "aten::tile",
    "aten::constant_pad_nd",
    "aten::pad",
    "aten::slice_backward",
    "aten::select_backward",
    "aten::zeros",
    "aten::zeros_like",
    "aten::new_zeros",
    "aten::ones",
    "aten::ones_like",
    "aten::clone",
    "aten::rand",
    "aten::rand_like",
    "aten::randint",
    "aten::randint_like",
    "aten::randn",
    "aten::randn_like",
    "aten::full",
    "aten::full_like",
    "aten::item",
    "aten::is_nonzero",
    "aten::one_hot",
    "aten::pixel_shuffle",
)
register_views(
    "aten::view",
    "aten::_unsafe_view",
    "aten::_reshape_alias",
    "aten::view_as",
    "aten::view_as_real",
    "aten::view_as_complex",
    "aten::reshape_as",
    "aten::t",
    "aten::numpy_T",
    "aten::transpose",
    "aten::transpose_",
    "aten::permute",
    "aten::movedim",
    "aten::swapaxes",
    "aten::expand",
    "aten::expand_as",
    "aten::broadcast_to",
    "aten::slice",
    "aten::select",
    "aten::narrow",
    "aten::split",
    "aten::split_with_sizes",
    "aten::tensor_split",
    "aten::chunk",
    "aten::unsafe_chunk",
    "aten::unsafe_split",
    "aten::unbind",
    "aten::unfold",
    "aten::unflatten",
    "aten::diagonal",
    "aten::squeeze",
    "aten::squeeze_",
    "aten::unsqueeze",
    "aten::unsqueeze_",
    "aten::as_strided",
    "aten::as_strided_",
    "aten::alias",
    "aten::detach",
    "aten::detach_",
    "detach",
    "detach_",
    "aten::real",
    "aten::conj",
    "aten::_conj",
    "aten::resolve_conj",
    "aten::resolve_neg",
    "aten::lift_fresh",
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::resize_",
    "aten::resize_as_",
    "aten::set_",
    "aten::result_type",
    "aten::can_cast",
    "aten::size",
    "aten::stride",
    "aten::is_same_size",
    "aten::_has_compatible_shallow_copy_type",
    "aten::_version",
    "aten::requires_grad_",
    "aten::retain_grad",
    "aten::record_stream",
    "aten::output_nr",
    "aten::_nnpack_available",
    "aten::is_floating_point",
    "aten::is_complex",
    "aten::_fused_sdp_choice",
)
