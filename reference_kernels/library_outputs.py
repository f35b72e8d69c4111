"""Outputs of library calls that allocate them: taken over, not copied."""

import torch


def empty_outputs(count: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Tensors without elements, for `adopt` to fill."""
    return tuple(torch.empty(0, device=device) for _ in range(count))


def adopt(outputs: tuple[torch.Tensor, ...], results: tuple[torch.Tensor, ...]) -> None:
    """Let each of `outputs` be the tensor that a call just allocated, without moving its data."""
    for output, result in zip(outputs, results, strict=True):
        output.data = result.detach()
