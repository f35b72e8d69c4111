"""The families of the suite, and what FAMILY[/VERSION] on a command line means.

A family is a folder beside this file with a module `problem`. Plug-ins add families, and versions
of families.
"""

import difflib
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Final, TypeAlias

from gpuprof.collectors.plugins import PluginGroup
from gpuprof.reference_kernels.suite import Problem, Version


class UnknownNameError(ValueError):
    """No family, version, size or dtype has this name; the text says what there is."""


@dataclass(frozen=True)
class Family:
    """One folder of the suite."""

    name: str
    problem: type[Problem]
    versions: tuple[Version, ...]


@cache
def _own_names() -> tuple[str, ...]:
    suite = files("gpuprof.reference_kernels")
    return tuple(
        sorted(f.name for f in suite.iterdir() if f.is_dir() and (f / "problem.py").is_file())
    )


@cache
def _own_family(name: str) -> Family:
    package = import_module(f"gpuprof.reference_kernels.{name}")
    return Family(name, _problem_of(name), package.VERSIONS)


# What a plug-in adds: a whole family, or one more version of any.
_Added: TypeAlias = Family | Version


def _labels(added: _Added) -> tuple[str, ...]:
    """What stands for it on a command line."""
    if isinstance(added, Version):
        return (added.label,)
    return (added.name, *(version.label for version in added.versions))


def _fault(added: _Added) -> str:
    """What keeps it from being run."""
    family = added.family if isinstance(added, Version) else added.name
    versions = (added,) if isinstance(added, Version) else added.versions
    for version in versions:
        if not version.implementation:
            return f"{version.label} names no module with a function prepare (implementation)"
        if version.family != family or "/" in version.name:
            return f"{version.label} is no version of {family}"
    if isinstance(added, Family) and not issubclass(added.problem, Problem):
        return f"the problem of {added.name} is no gpuprof.reference_kernels.suite.Problem"
    return ""


KERNELS: Final = PluginGroup[_Added](
    name="gpuprof.reference_kernels",
    adds="reference kernel",
    kinds=(Family, Version),
    claims=_labels,
    ours=lambda: [label for name in _own_names() for label in _labels(_own_family(name))],
    fault=_fault,
)


def family_names() -> tuple[str, ...]:
    """All families, sorted by name; those of plug-ins behind ours."""
    added = (one.value.name for one in KERNELS.load() if isinstance(one.value, Family))
    return (*_own_names(), *sorted(added))


def load_family(name: str) -> Family:
    """The family called `name`. Raises `UnknownNameError`."""
    if name not in family_names():
        raise UnknownNameError(f"no family {name!r}: {_nearest(name, family_names())}")
    family = _own_family(name) if name in _own_names() else _added_family(name)
    more = tuple(
        replace(one.value, plugin=one.origin.distribution)
        for one in KERNELS.load()
        if isinstance(one.value, Version) and one.value.family == name
    )
    return replace(family, versions=(*family.versions, *more))


def _added_family(name: str) -> Family:
    """The family called `name` of the plug-in that adds it."""
    ((family, by),) = (
        (one.value, one.origin.distribution)
        for one in KERNELS.load()
        if isinstance(one.value, Family) and one.value.name == name
    )
    return replace(
        family, versions=tuple(replace(version, plugin=by) for version in family.versions)
    )


def select(wanted: Sequence[str]) -> tuple[Family, ...]:
    """The families and versions that FAMILY and FAMILY/VERSION name; all where nothing is wanted.

    Each family appears once, with the chosen of its versions in its own order. Raises
    `UnknownNameError`.
    """
    chosen: dict[str, set[str]] = {}
    for text in wanted or family_names():
        name, _, version = text.partition("/")
        family = load_family(name)
        known = [v.name for v in family.versions]
        if version and version not in known:
            raise UnknownNameError(f"no version {version!r} of {name}: {_nearest(version, known)}")
        chosen.setdefault(name, set()).update([version] if version else known)
    return tuple(
        Family(name, family.problem, tuple(v for v in family.versions if v.name in versions))
        for name, versions in chosen.items()
        for family in [load_family(name)]
    )


def _problem_of(family: str) -> type[Problem]:
    """The problem that the module `problem` of a family defines for it."""
    module = import_module(f"gpuprof.reference_kernels.{family}.problem")
    (found,) = (
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, Problem)
        and getattr(value, "family", None) == family
    )
    return found


def _nearest(name: str, known: Iterable[str]) -> str:
    """ "did you mean ...?" where something is near, and what there is."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    question = f"did you mean {near[0]}? " if near else ""
    return f"{question}there are {', '.join(names)}"
