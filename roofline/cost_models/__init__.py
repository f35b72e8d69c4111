"""Cost models of operators, one module per family.

Importing the package imports each of its modules, which registers their models: a new family is a
new file. `cost_model` is also the way for a program, or a plug-in, to register its own operators.
"""

from importlib import import_module
from pkgutil import iter_modules

from gpuprof.roofline.cost_models.registry import (
    cost_model,
    cost_of,
    cost_of_kernel,
    family_of,
    is_composite,
    is_modelled,
    is_modelled_kernel,
    is_view,
    origin_of,
    origin_of_kernel,
    registered_names,
)

__all__ = [
    "cost_model",
    "cost_of",
    "cost_of_kernel",
    "family_of",
    "is_composite",
    "is_modelled",
    "is_modelled_kernel",
    "is_view",
    "origin_of",
    "origin_of_kernel",
    "registered_names",
]

# In alphabetical order, wherever the package lies: where two name one operator the later one holds.
for _module in sorted(iter_modules(__path__), key=lambda module: module.name):
    import_module(f"{__name__}.{_module.name}")
