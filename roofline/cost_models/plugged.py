"""Cost models of plug-ins.

An entry point of `gpuprof.cost_models` is a module: importing it registers its models with
`gpuprof.cost_model`, as a program does with its own. A plug-in adds models of operators that have
none; where a name is taken, by us or by a plug-in before it, that model stays.
"""

from types import ModuleType
from typing import Final

from gpuprof.collectors.plugins import LOADING, Installed, installed, problem_with
from gpuprof.roofline.cost_models.registry import adopt, registered_names, registering

GROUP: Final = "gpuprof.cost_models"
ADDS: Final = "cost model"
_done: set[str] = set()


def load_plugged_models() -> None:
    """Register the models of plug-ins, once in this process."""
    with LOADING:
        if GROUP not in _done:
            _done.add(GROUP)
            for one in installed(GROUP):
                _register(one)


def _register(one: Installed) -> None:
    with registering(one.origin):
        module = one.load()
    if module is None:
        return
    if not isinstance(module, ModuleType):
        found = f"{one.entry_point.value} is a {type(module).__name__}"
        problem_with(one.origin, f"{found}, expected a module that calls gpuprof.cost_model")
        return
    adopt(one.origin, module.__name__)
    if not registered_names(one.origin):
        problem_with(one.origin, f"{module.__name__} registered no cost model")
