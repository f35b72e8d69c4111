"""What holds each tensor that is alive: a model, an optimizer, a gradient, or the program alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.optim.optimizer import Optimizer
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from gpuprof.collectors.live.live_objects import live_objects
from gpuprof.collectors.live.module_paths import outermost_modules, walk
from gpuprof.collectors.live.script_errors import hiding_our_errors

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
        for gradient in _gradient(parameter)
        for device, address, size in _storages(gradient)
    ]


def _gradient(parameter: torch.Tensor) -> list[torch.Tensor]:
    """The gradient of `parameter`, if it has one."""
    # As of `_storages`; and torch warns where what is no leaf is asked.
    with hiding_our_errors(), torch._C.DisableTorchFunctionSubclass():
        if parameter.is_leaf and parameter.grad is not None:
            return [parameter.grad]
    return []


def _held(alive: Sequence[Any]) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Each live tensor with its category and name, the most telling first."""
    parameters: list[tuple[str, torch.Tensor]] = []
    for model in outermost_modules(live_objects(nn.Module, among=alive)):
        # Not by named_parameters, which a program may define in its own way.
        for module, path in walk(model):
            parameters += _named(path, module._parameters)
            yield from (("buffer", *named) for named in _named(path, module._buffers))
    optimizers = live_objects(Optimizer, among=alive)
    for optimizer in optimizers:
        # One whose constructor raised has none.
        for group in getattr(optimizer, "param_groups", ()):
            parameters += [("", parameter) for parameter in group["params"]]
    for name, parameter in parameters:
        yield "parameter", name, parameter
        yield from (("gradient", name, gradient) for gradient in _gradient(parameter))
    for optimizer in optimizers:
        for state in list(getattr(optimizer, "state", {}).values()):
            for tensor in _tensors(state, _DEEPEST):
                yield "optimizer state", type(optimizer).__name__, tensor
    yield from (("tensor", "", tensor) for tensor in live_objects(torch.Tensor, among=alive))


def _named(path: str, members: Mapping[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """The tensors that the module at `path` holds itself, with their names in its model."""
    return [
        (f"{path}.{name}" if path else name, tensor)
        for name, tensor in members.items()
        if tensor is not None
    ]


def _tensors(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, dict):
        for inner in list(value.values()):
            yield from _tensors(inner, depth - 1)
    elif depth and isinstance(value, list | tuple):
        for inner in value:
            yield from _tensors(inner, depth - 1)


def _storages(tensor: torch.Tensor) -> list[tuple[int | None, int, int]]:
    """Device, address and size of the memory of `tensor`; none where it has none of its own.

    Tensors that stand for others (DTensor, quantized ones) have that of those.
    """
    # A subclass answers in its own way to every call on it, or refuses.
    with hiding_our_errors(), torch._C.DisableTorchFunctionSubclass():
        if is_traceable_wrapper_subclass(tensor):
            inner = tensor.__tensor_flatten__()[0]
            return [found for name in inner for found in _storages(getattr(tensor, name))]
        if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            # Such as those of a compiler, which have a device and no memory: torch warns, or from
            # some release on raises, where the address of one is asked for.
            return []
        if tensor.device.type in ("cpu", "cuda") and tensor.layout == torch.strided:
            storage = tensor.untyped_storage()
            address, size = storage.data_ptr(), storage.nbytes()
            if address and size:
                return [(tensor.device.index if tensor.is_cuda else None, address, size)]
    return []
