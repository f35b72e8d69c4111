"""The model of this process: its parameters by role and shape, for closed forms such as 6 N."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import nn

from gpuprof.collectors.live.live_objects import live_objects
from gpuprof.collectors.live.module_paths import outermost_modules, parameters, walk
from gpuprof.collectors.manifest import ModelParameters, ParameterRole, ParameterShape

_Key = tuple[ParameterRole, tuple[int, ...], bool]


def live_model(among: Sequence[Any] | None = None) -> ModelParameters | None:
    """The one outermost module with parameters that is alive.

    None where there are several, which may or may not take part in a step, and where parameters
    are sharded over ranks (FSDP, DTensor) or not yet made: their sizes are not what a step
    multiplies.
    """
    roots = [
        root for root in outermost_modules(live_objects(nn.Module, among=among)) if parameters(root)
    ]
    if len(roots) != 1 or _is_sharded(roots[0]):
        return None
    shapes = [
        ParameterShape(role=role, shape=shape, count=count, trainable=trainable)
        for (role, shape, trainable), count in _count(roots[0]).items()
    ]
    return ModelParameters(name=type(roots[0]).__name__, shapes=tuple(shapes))


def _is_sharded(model: nn.Module) -> bool:
    # nn.Parameter subclasses: FlatParameter, UninitializedParameter, DTensor.
    return any(type(parameter) is not nn.Parameter for parameter in parameters(model))


def _count(model: nn.Module) -> Counter[_Key]:
    """How many parameters of each role and shape; one that several modules share counts once."""
    roles: dict[int, tuple[nn.Parameter, ParameterRole]] = {}
    for module, _ in walk(model):
        for parameter in module._parameters.values():
            if parameter is None:
                continue
            role = _role(module, parameter)
            # Tied to an output head, a table is multiplied with as well.
            if id(parameter) not in roles or roles[id(parameter)][1] == "embedding":
                roles[id(parameter)] = (parameter, role)
    return Counter(
        (role, tuple(parameter.shape), parameter.requires_grad)
        for parameter, role in roles.values()
    )


def _role(module: nn.Module, parameter: nn.Parameter) -> ParameterRole:
    if parameter.dim() < 2:
        return "other"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return "embedding"
    # torch's base class of all convolutions.
    return "convolution" if isinstance(module, nn.modules.conv._ConvNd) else "matrix"
