"""torch's scaled_dot_product_attention with one backend forced, forward and backward."""

import warnings
from collections.abc import Callable

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from gpuprof.reference_kernels.attention.problem import AttentionProblem
from gpuprof.reference_kernels.library_outputs import adopt, empty_outputs
from gpuprof.reference_kernels.suite import Prepared, UnsupportedError
from gpuprof.roofline.cost_models.cost import Flops


def tile_flops(problem: AttentionProblem, rows: int, columns: int) -> tuple[Flops, ...] | None:
    """What a GPU executes at D = 128 in whole tiles of these sizes; None where not known.

    The libraries choose tiles by head size and do not tell which; these were counted on an H100.
    """
    if problem.head_size != 128 or problem.device.type != "cuda":
        return None
    product = (10 if problem.backward else 4) * problem.head_size
    return (Flops("matmul", problem.dtype, product * problem.visited_pairs(rows, columns)),)


def prepare_backend(
    problem: AttentionProblem,
    backend: SDPBackend,
    *,
    executed_flops: tuple[Flops, ...] | None = None,
    expected_bytes_read: int | None = None,
    expected_bytes_written: int | None = None,
) -> Prepared:
    """`problem` by `backend`, which need not be named again when called.

    Backward: the forward runs here, once; a call is what autograd does for it. Raises
    `UnsupportedError` where the backend refuses the problem.
    """
    if problem.mode == "decode":
        raise UnsupportedError("torch's attention reads no pages: see attention/gathered-decode")
    with warnings.catch_warnings(record=True) as told, torch.inference_mode(False):
        warnings.simplefilter("always")
        try:
            solve = _backward(problem, backend) if problem.backward else _forward(problem, backend)
            results = solve()
        # "No available kernel" and its like.
        except RuntimeError as error:
            why = _reason(told) or str(error)
            raise UnsupportedError(f"torch's {backend.name} backend refuses: {why}") from error
    outputs = empty_outputs(len(results), problem.device)
    return Prepared(
        call=lambda: adopt(outputs, solve()),
        outputs=outputs,
        executed_flops=executed_flops,
        expected_bytes_read=expected_bytes_read,
        expected_bytes_written=expected_bytes_written,
    )


def _reason(told: list[warnings.WarningMessage]) -> str | None:
    """The first of torch's warnings that is about the problem; each ends with where it arose."""
    texts = [str(one.message).split(" (Triggered internally")[0] for one in told]
    known = ("not used because", "runtime disabled")
    return next((text for text in texts if not any(part in text for part in known)), None)


def _attend(
    problem: AttentionProblem, backend: SDPBackend, inputs: tuple[torch.Tensor, ...]
) -> torch.Tensor:
    query, key, value = inputs
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(
            query, key, value, is_causal=problem.causal, enable_gqa=problem.group > 1
        )


def _forward(
    problem: AttentionProblem, backend: SDPBackend
) -> Callable[[], tuple[torch.Tensor, ...]]:
    inputs = (problem.query, problem.key, problem.value)

    def solve() -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            return (_attend(problem, backend, inputs),)

    return solve


def _backward(
    problem: AttentionProblem, backend: SDPBackend
) -> Callable[[], tuple[torch.Tensor, ...]]:
    tensors = (problem.query, problem.key, problem.value)
    inputs = tuple(tensor.detach().requires_grad_() for tensor in tensors)
    with torch.enable_grad():
        output = _attend(problem, backend, inputs)

    def solve() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(output, inputs, problem.output_gradient, retain_graph=True)

    return solve
