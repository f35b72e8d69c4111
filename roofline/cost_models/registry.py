"""Which operators have a cost model, and which only pass work on to others."""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from gpuprof.roofline.cost_models.call import OpCall
from gpuprof.roofline.cost_models.cost import Cost

Model: TypeAlias = Callable[[OpCall], Cost | None]
_ModelT = TypeVar("_ModelT", bound=Model)

NO_WORK = Cost(flops=(), bytes_read=0, bytes_written=0)

_models: dict[str, Model] = {}
_composites: set[str] = set()
_views: set[str] = set()


def cost_model(*names: str, composite: bool = False) -> Callable[[_ModelT], _ModelT]:
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
                flops=(gpuprof.Flops("matmul", "bf16", n),), bytes_read=None, bytes_written=None
            )
    """

    def register(model: _ModelT) -> _ModelT:
        for name in names:
            _models[name] = model
            (_composites.add if composite else _composites.discard)(name)
            _views.discard(name)
        return model

    return register


def register_views(*names: str) -> None:
    """Register operators that only make a new view, allocate or ask: no work on any device."""
    for name in names:
        _models[name] = _no_work
        _views.add(name)


def register_composites(*names: str) -> None:
    """Mark operators without a model of their own that do all their work through others."""
    _composites.update(names)


def _no_work(call: OpCall) -> Cost:
    return NO_WORK


def cost_of(call: OpCall) -> Cost | None:
    """What `call` costs, or None where its operator has no model or the model has no answer.

    A negative figure means that the model misread the arguments: that is no answer either.
    """
    model = _models.get(call.name)
    cost = None if model is None else model(call)
    return None if cost is None or _has_negative(cost) else cost


def _has_negative(cost: Cost) -> bool:
    counts = (part.count for part in cost.flops or ())
    figures = (*counts, cost.bytes_read, cost.bytes_written, cost.full_attention_flops)
    return any(figure is not None and figure < 0 for figure in figures)


def is_modelled(name: str) -> bool:
    """Whether an operator called `name` has a cost model."""
    return name in _models


def is_composite(name: str) -> bool:
    """Whether `name` does its work by calling other operators, which carry the cost."""
    return name in _composites


def is_view(name: str) -> bool:
    """Whether `name` does no device work: views, allocation, queries of metadata."""
    return name in _views
