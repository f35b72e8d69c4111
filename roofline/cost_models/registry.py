"""Which operators have a cost model, and which only pass work on to others."""

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, TypeVar, overload

import msgspec

from gpuprof.collectors.plugins import PluginOrigin, problem_with
from gpuprof.roofline.cost_models.call import OpCall
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.kernel_launch import KernelLaunch

Model: TypeAlias = Callable[[OpCall], Cost | None]
KernelModel: TypeAlias = Callable[[KernelLaunch], Cost | None]
_ModelT = TypeVar("_ModelT", bound=Model)
_KernelModelT = TypeVar("_KernelModelT", bound=KernelModel)

NO_WORK = Cost(flops=(), bytes_read=0, bytes_written=0)

_models: dict[str, Model] = {}
_kernel_models: dict[str, KernelModel] = {}
# Those names of each that hold a wildcard, in the order of registration.
_patterns: list[str] = []
_kernel_patterns: list[str] = []
_composites: set[str] = set()
_views: set[str] = set()
# The plug-ins that registered names; all others are ours, or the program's.
_origins: dict[str, PluginOrigin] = {}
_kernel_origins: dict[str, PluginOrigin] = {}
# The plug-in that registers now.
_registering: PluginOrigin | None = None


@overload
def cost_model(*names: str, composite: bool = False) -> Callable[[_ModelT], _ModelT]: ...


@overload
def cost_model(*, kernel: str) -> Callable[[_KernelModelT], _KernelModelT]: ...


def cost_model(
    *names: str, composite: bool = False, kernel: str | None = None
) -> Callable[[Any], Any]:
    """Register the decorated function as the model of the operators called `names`.

    The function takes the `OpCall` and returns its `Cost`, or None where it does not understand
    the arguments; it never raises for what a trace may hold. A later registration replaces an
    earlier one, so a program can correct a model of ours. `composite` marks operators that do
    their work by calling other modelled ones: their model applies only where they launched a
    kernel themselves, and never on top of what they called.

        @gpuprof.cost_model("mylib::fused_mlp")
        def fused_mlp(call):
            x, w = call.tensor(0), call.tensor(1)
            if x is None or w is None:
                return None
            n = 2 * x.shape[0] * x.shape[1] * w.shape[1]
            return gpuprof.Cost(
                flops=(gpuprof.Flops("matmul", "bf16", n),),
                bytes_read=None,
                bytes_written=None,
                weight_bytes=w.bytes,
                key_value_bytes=0,
            )

    With `kernel` the function is the model of the kernels of that name, for those that no operator
    with a model launched: it takes the `KernelLaunch`.

    Names may be patterns with `*`, `?` and `[...]`, matched with case. A name that is registered
    itself goes before all patterns, the pattern that was registered last before others.
    """

    def register(model: Any) -> Any:
        for name in names:
            if not _may_register(name, _models, _origins):
                continue
            _models[name] = model
            _note_pattern(name, _patterns)
            (_composites.add if composite else _composites.discard)(name)
            _views.discard(name)
        if kernel is not None and _may_register(kernel, _kernel_models, _kernel_origins):
            _kernel_models[kernel] = model
            _note_pattern(kernel, _kernel_patterns)
        return model

    return register


def register_views(*names: str) -> None:
    """Register operators that only make a new view, allocate or ask: no work on any device."""
    for name in names:
        if _may_register(name, _models, _origins):
            _models[name] = _no_work
            _views.add(name)


def register_composites(*names: str) -> None:
    """Mark operators without a model of their own that do all their work through others."""
    _composites.update(names)


@contextmanager
def registering(origin: PluginOrigin) -> Iterator[None]:
    """What is registered in the block is of a plug-in: it adds models, and replaces none."""
    global _registering
    _registering = origin
    try:
        yield
    finally:
        _registering = None


def adopt(origin: PluginOrigin, module: str) -> None:
    """Take what was registered in `module` or below as the plug-in's.

    Where a program itself imports the module, that happened before the plug-in was loaded.
    """
    for models, origins in ((_models, _origins), (_kernel_models, _kernel_origins)):
        for name, model in models.items():
            if f"{model.__module__}.".startswith(f"{module}."):
                origins.setdefault(name, origin)


def registered_names(origin: PluginOrigin) -> list[str]:
    """The operators and kernels that the plug-in `origin` has models of."""
    both = (*_origins.items(), *_kernel_origins.items())
    return [name for name, holder in both if holder == origin]


def _may_register(name: str, models: dict[str, Any], origins: dict[str, PluginOrigin]) -> bool:
    """Whether `name` is free for who registers now, and noted as theirs."""
    if _registering is None:
        origins.pop(name, None)
        return True
    holder = origins.get(name)
    if name in models and holder != _registering:
        by_us = models[name].__module__.startswith("gpuprof.")
        # A program that has its own model of an operator knows that it does.
        if by_us or holder is not None:
            whose = "gpuprof" if holder is None else holder.distribution
            problem_with(
                _registering, f"{name} has a cost model of {whose}, which stays; it is left out"
            )
        return False
    origins[name] = _registering
    return True


def _no_work(call: OpCall) -> Cost:
    return NO_WORK


def _note_pattern(name: str, patterns: list[str]) -> None:
    if name in patterns:
        patterns.remove(name)
    if any(wildcard in name for wildcard in "*?["):
        patterns.append(name)


def _entry(name: str, exact: Container[str], patterns: Sequence[str]) -> str | None:
    """What `name` is registered under."""
    if name in exact:
        return name
    return next((each for each in reversed(patterns) if fnmatchcase(name, each)), None)


def cost_of(call: OpCall) -> Cost | None:
    """What `call` costs, or None where its operator has no model or the model has no answer.

    A negative figure means that the model misread the arguments: that is no answer either. The
    models of torch's operators count dense tensors.
    """
    entry = _entry(call.name, _models, _patterns)
    if entry is None or (call.sparse and call.name.startswith("aten::") and entry not in _views):
        return None
    return _checked(_models[entry](call), _origins.get(entry))


def cost_of_kernel(launch: KernelLaunch) -> Cost | None:
    """What `launch` costs by the model registered for its kernel, like `cost_of`."""
    entry = _entry(launch.name, _kernel_models, _kernel_patterns)
    if entry is None:
        return None
    return _checked(_kernel_models[entry](launch), _kernel_origins.get(entry))


def _checked(cost: Cost | None, origin: PluginOrigin | None) -> Cost | None:
    """`cost` if it can be one, with the plug-in that counted it. Raises `TypeError`."""
    if cost is None:
        return None
    if not isinstance(cost, Cost):
        raise TypeError(f"it gave {type(cost).__name__}, expected a gpuprof.Cost or None")
    if _has_negative(cost):
        return None
    if origin is None:
        return cost
    said = f"counted by the cost model of {origin.distribution}"
    return msgspec.structs.replace(cost, assumptions=(*cost.assumptions, said))


def origin_of(name: str) -> PluginOrigin | None:
    """The plug-in that models operators called `name`; None for models of others, or none."""
    entry = _entry(name, _models, _patterns)
    return None if entry is None else _origins.get(entry)


def origin_of_kernel(name: str) -> PluginOrigin | None:
    """The same of kernels."""
    entry = _entry(name, _kernel_models, _kernel_patterns)
    return None if entry is None else _kernel_origins.get(entry)


def _has_negative(cost: Cost) -> bool:
    counts = (part.count for part in cost.flops or ())
    figures = (
        *counts,
        cost.bytes_read,
        cost.bytes_written,
        cost.full_attention_flops,
        cost.weight_bytes,
        cost.key_value_bytes,
    )
    return any(figure is not None and figure < 0 for figure in figures)


def is_modelled(name: str) -> bool:
    """Whether an operator called `name` has a cost model."""
    return _entry(name, _models, _patterns) is not None


def family_of(name: str) -> str | None:
    """The module of `gpuprof.roofline.cost_models` that models an operator called `name`.

    None where none does: it has no model, or one that a program registered.
    """
    entry = _entry(name, _models, _patterns)
    if entry is None:
        return None
    package, _, module = _models[entry].__module__.rpartition(".")
    return module if package == __package__ else None


def is_modelled_kernel(name: str) -> bool:
    """Whether a kernel called `name` has a cost model of its own."""
    return _entry(name, _kernel_models, _kernel_patterns) is not None


def is_composite(name: str) -> bool:
    """Whether `name` does its work by calling other operators, which carry the cost."""
    return name in _composites or _entry(name, _models, _patterns) in _composites


def is_view(name: str) -> bool:
    """Whether `name` does no device work: views, allocation, queries of metadata."""
    return name in _views
