"""Distributions with plug-ins, as an installer leaves them: modules and a .dist-info."""

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuprof.collectors.plugins import discovery, group, problems
from gpuprof.roofline import classes
from gpuprof.roofline.cost_models import plugged, registry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EntryPoints = Mapping[str, Mapping[str, str]]


def install(folder: Path, name: str, entry_points: EntryPoints, version: str = "1.0") -> None:
    """Make `folder`, which is on the path, hold what tells of a distribution."""
    information = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )
    lines = (
        line
        for title, entries in entry_points.items()
        for line in (f"[{title}]", *(f"{key} = {value}" for key, value in entries.items()))
    )
    (information / "entry_points.txt").write_text("\n".join(lines))
    _look_again()


def install_project(folder: Path, source: Path) -> None:
    """The same for the project in `source`, whose modules stay there."""
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    install(folder, project["name"], project["entry-points"], project["version"])


@contextmanager
def nothing_loaded(monkeypatch: pytest.MonkeyPatch, *path: Path) -> Iterator[None]:
    """No plug-in is loaded yet, before the block and after it; `path` is searched in it."""
    for place in reversed(path):
        monkeypatch.syspath_prepend(place)
    monkeypatch.setattr(group, "_loaded", {})
    monkeypatch.setattr(problems, "_problems", [])
    monkeypatch.setattr(plugged, "_done", set())
    for name in ("_models", "_kernel_models", "_origins", "_kernel_origins"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    for name in ("_patterns", "_kernel_patterns"):
        monkeypatch.setattr(registry, name, list(getattr(registry, name)))
    before = set(sys.modules)
    _look_again()
    try:
        yield
    finally:
        _look_again()
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and any(place in Path(file).parents for place in path):
                del sys.modules[name]


def _look_again() -> None:
    importlib.invalidate_caches()
    group._loaded.clear()
    discovery._all.cache_clear()
    classes.classes.cache_clear()
