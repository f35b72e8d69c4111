"""The paths of a program's modules, as `named_modules` of its model gives them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from torch import nn

# What wraps a module keeps it under these names: torch.compile, FSDP, activation checkpointing.
# torch's own state dicts leave them out, too (torch/distributed/fsdp/_common_utils.py).
WRAPPED: Final = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
# Wrappers of a whole model, by the name of their class, keep it under this one.
_WRAPPED_MODEL: Final = "module"
_WRAPPERS: Final = (
    "DataParallel",
    "DistributedDataParallel",
    "FullyShardedDataParallel",
    "DeepSpeedEngine",
    "Float16Module",
)


def module_paths(called: Sequence[nn.Module], alive: Iterable[nn.Module]) -> list[str]:
    """The path of each module of `called`; `alive` are all modules of the process.

    Of a program with one model, paths begin below it, and the model itself has the name of its
    class. Where several modules with parameters stand in no other, paths begin with the name of
    their class, numbered where that is not alone. So do those of a module without parameters that
    stands by itself, such as a loss. Wrappers leave no trace.
    """
    roots = outermost_modules((*alive, *called))
    wanted = {id(module) for module in called}
    below = {id(root): list(walk(root)) for root in roots}
    roots = [root for root in roots if any(id(part) in wanted for part, _ in below[id(root)])]
    models = [root for root in roots if parameters(root)]
    labels = _labels(roots)
    found: dict[int, str] = {}
    for root in roots:
        alone = len(models) == 1 and root is models[0]
        for module, path in below[id(root)]:
            # Those of an nn.Sequential begin with a number, which alone says nothing.
            bare = alone and path and not path[0].isdigit()
            full = path if bare else ".".join(filter(None, (labels[id(root)], path)))
            found.setdefault(id(module), full)
    return [found.get(id(module), type(module).__name__) for module in called]


def outermost_modules(alive: Iterable[nn.Module]) -> list[nn.Module]:
    """Each module of `alive`, once, that is in no other one of them."""
    # One whose constructor has not run yet has no _modules.
    known = {id(module): module for module in alive if "_modules" in vars(module)}
    inner = {id(child) for module in known.values() for child in module._modules.values()}
    return [module for module in known.values() if id(module) not in inner]


def walk(root: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Each module in `root`, itself first, and its path; of several paths the first."""
    seen: set[int] = set()
    waiting: list[tuple[nn.Module, str]] = [(root, "")]
    while waiting:
        module, path = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield module, path
        is_wrapper = type(module).__name__ in _WRAPPERS
        children = [(child, name) for name, child in module._modules.items() if child is not None]
        for child, name in reversed(children):
            hidden = name in WRAPPED or (is_wrapper and name == _WRAPPED_MODEL)
            waiting.append((child, path if hidden else ".".join(filter(None, (path, name)))))


def parameters(root: nn.Module) -> list[nn.Parameter]:
    """Those of all modules in `root`, as often as they have a name.

    Not by torch's method of this name, which a program may define in its own way.
    """
    return [
        parameter
        for module, _ in walk(root)
        for parameter in module._parameters.values()
        if parameter is not None
    ]


def _labels(roots: Sequence[nn.Module]) -> dict[int, str]:
    """The class of what each root wraps, numbered from the second on."""
    names = {id(root): type(_unwrapped(root)).__name__ for root in roots}
    times = Counter[str]()
    for root, name in names.items():
        times[name] += 1
        names[root] = name if times[name] == 1 else f"{name}#{times[name]}"
    return names


def _unwrapped(module: nn.Module) -> nn.Module:
    while True:
        names = (*WRAPPED, *((_WRAPPED_MODEL,) if type(module).__name__ in _WRAPPERS else ()))
        inner = next((module._modules.get(name) for name in names if name in module._modules), None)
        if inner is None:
            return module
        module = inner
