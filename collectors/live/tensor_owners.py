"""What holds each tensor that is alive: a model, an optimizer, a gradient, or the program alone."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.optim.optimizer import Optimizer
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from gpuprof.collectors.live.live_objects import live_objects

# How deep an optimizer's state may nest lists and dictionaries.
_DEEPEST: Final = 4


@dataclass(frozen=True)
class HeldStorage:
    """The memory of one or more tensors. `device` is a CUDA device's number, None main memory."""

    device: int | None
    address: int
    bytes: int
    # As the column `category` of the table memory_blocks.
    category: str
    name: str = ""


def held_storages(among: Sequence[Any] | None = None) -> list[HeldStorage]:
    """Every storage of a live tensor, once, with the most telling of what holds it.

    `among` as in `live_objects`. Tensors that only autograd holds are no Python objects.
    """
    alive = live_objects(Optimizer, nn.Module, torch.Tensor) if among is None else among
    found: dict[tuple[int | None, int], HeldStorage] = {}
    for category, name, tensor in _held(alive):
        for device, address, size in _storages(tensor):
            found.setdefault((device, address), HeldStorage(device, address, size, category, name))
    return list(found.values())


def gradient_storages(optimizer: Any) -> list[HeldStorage]:
    """The gradients of the parameters that `optimizer` steps."""
    return [
        HeldStorage(device, address, size, "gradient")
        for group in getattr(optimizer, "param_groups", ())
        for parameter in group["params"]
        if parameter.grad is not None
        for device, address, size in _storages(parameter.grad)
    ]


def _held(alive: Sequence[Any]) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Each live tensor with its category and name, the most telling first."""
    # One whose constructor has not run yet has no _modules.
    modules = [m for m in live_objects(nn.Module, among=alive) if "_modules" in vars(m)]
    inner = {id(child) for module in modules for child in module._modules.values()}
    parameters: list[tuple[str, torch.Tensor]] = []
    for module in modules:
        if id(module) not in inner:
            parameters += module.named_parameters()
            yield from (("buffer", name, buffer) for name, buffer in module.named_buffers())
    optimizers = live_objects(Optimizer, among=alive)
    for optimizer in optimizers:
        # One whose constructor raised has none.
        for group in getattr(optimizer, "param_groups", ()):
            parameters += [("", parameter) for parameter in group["params"]]
    for name, parameter in parameters:
        yield "parameter", name, parameter
        if parameter.grad is not None:
            yield "gradient", name, parameter.grad
    for optimizer in optimizers:
        for state in list(getattr(optimizer, "state", {}).values()):
            for tensor in _tensors(state, _DEEPEST):
                yield "optimizer state", type(optimizer).__name__, tensor
    yield from (("tensor", "", tensor) for tensor in live_objects(torch.Tensor, among=alive))


def _tensors(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, dict):
        for inner in list(value.values()):
            yield from _tensors(inner, depth - 1)
    elif depth and isinstance(value, list | tuple):
        for inner in value:
            yield from _tensors(inner, depth - 1)


def _storages(tensor: torch.Tensor) -> Iterator[tuple[int | None, int, int]]:
    """Device, address and size of the memory of `tensor`; none where it has none of its own.

    Tensors that stand for others (DTensor, quantized ones) have that of those.
    """
    # A subclass answers in its own way to every call on it, or refuses.
    with suppress(Exception), torch._C.DisableTorchFunctionSubclass():
        if is_traceable_wrapper_subclass(tensor):
            for name in tensor.__tensor_flatten__()[0]:
                yield from _storages(getattr(tensor, name))
            return
        if tensor.device.type not in ("cpu", "cuda") or tensor.layout != torch.strided:
            return
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if address and size:
            yield (tensor.device.index if tensor.is_cuda else None), address, size
