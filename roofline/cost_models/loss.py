"""Losses. Cross entropy is log_softmax, then nll_loss, which picks one element a row.

Source: the definition of torch.nn.NLLLoss, written out.
"""

import math

from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.counting import bytes_for, bytes_of, total, vector_flops
from gpuprof.roofline.cost_models.registry import cost_model, register_composites

_NO_REDUCTION = 0


@cost_model("aten::nll_loss_forward", "aten::nll_loss2d_forward")
def nll_loss_forward(call: OpCall) -> Cost | None:
    """(self, target, weight, reduction, ignore_index) -> output, total_weight.

    Picks one element for each target; an operation to negate it and one to add it.
    """
    scores, target, reduction = call.tensor(0), call.tensor(1), call.integer(3)
    if scores is None or target is None or reduction is None:
        return None
    outputs = target.elements if reduction == _NO_REDUCTION else 1
    return Cost(
        flops=vector_flops(scores.dtype, 2 * target.elements),
        bytes_read=total(
            (bytes_of(target, call.tensor(2)), bytes_for(target.elements, scores.dtype))
        ),
        bytes_written=bytes_for(outputs + 1, scores.dtype),
    )


@cost_model("aten::nll_loss_backward", "aten::nll_loss2d_backward")
def nll_loss_backward(call: OpCall) -> Cost | None:
    """(grad_output, self, target, weight, reduction, ignore_index, total_weight).

    Writes one element for each target; zero_, which it calls, clears the others.
    """
    gradient, scores, target = call.tensor(0), call.tensor(1), call.tensor(2)
    if gradient is None or scores is None or target is None:
        return None
    return Cost(
        flops=vector_flops(scores.dtype, 2 * target.elements),
        bytes_read=bytes_of(gradient, target, call.tensor(3), call.tensor(6)),
        bytes_written=bytes_for(target.elements, scores.dtype),
    )


def _pointwise_loss(
    call: OpCall, operations: int, weight: Tensor | None, reduction: int | None
) -> Cost | None:
    scores, target = call.tensor(0), call.tensor(1)
    if scores is None or target is None or reduction is None:
        return None
    outputs = math.prod(scores.shape) if reduction == _NO_REDUCTION else 1
    return Cost(
        flops=vector_flops(scores.dtype, operations * scores.elements),
        bytes_read=bytes_of(scores, target, weight),
        bytes_written=bytes_for(outputs, scores.dtype),
    )


@cost_model("aten::mse_loss", composite=True)
def mse_loss(call: OpCall) -> Cost | None:
    """(self, target, reduction): subtract, square, add. Reduced ones call mean or sum."""
    return _pointwise_loss(call, 3, None, call.integer(2))


@cost_model("aten::smooth_l1_loss", "aten::huber_loss", composite=True)
def smooth_l1_loss(call: OpCall) -> Cost | None:
    """(self, target, reduction, beta): subtract, absolute, compare, square, scale, add."""
    return _pointwise_loss(call, 6, None, call.integer(2))


@cost_model("aten::binary_cross_entropy")
def binary_cross_entropy(call: OpCall) -> Cost | None:
    """(self, target, weight, reduction): 2 logarithms, 2 products, 1 - x, 1 - y, sum, sign."""
    return _pointwise_loss(call, 8, call.tensor(2), call.integer(3))


register_composites(
    "aten::cross_entropy_loss",
    "aten::nll_loss",
    "aten::nll_loss_nd",
    "aten::nll_loss2d",
    "aten::l1_loss",
    "aten::kl_div",
    "aten::binary_cross_entropy_with_logits",
    "aten::soft_margin_loss",
    "aten::hinge_embedding_loss",
    "aten::cosine_embedding_loss",
    "aten::cosine_similarity",
    "aten::triplet_margin_loss",
)
