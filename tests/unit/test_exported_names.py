"""The names that `import gpuprof` offers."""

import ast
import importlib
from pathlib import Path

import pytest

import gpuprof

TREE = ast.parse(Path(gpuprof.__file__).read_text())


@pytest.mark.parametrize("name", gpuprof.__all__)
def test_each_name_is_there_and_documented(name: str) -> None:
    found = getattr(gpuprof, name)
    assert found is not None
    if name != "__version__":
        assert found.__doc__
        assert found.__name__ == name


def test_names_are_sorted_and_listed_by_dir() -> None:
    assert list(gpuprof.__all__) == sorted(gpuprof.__all__)
    assert dir(gpuprof) == sorted(gpuprof.__all__)


def test_type_checkers_see_the_modules_that_names_are_loaded_from() -> None:
    typed = {
        alias.name: node.module
        for block in TREE.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == gpuprof._HOME_OF
    assert {*typed, "__version__"} == set(gpuprof.__all__)


def test_a_name_is_the_one_of_its_module() -> None:
    for name, home in gpuprof._HOME_OF.items():
        assert getattr(gpuprof, name) is getattr(importlib.import_module(home), name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'gpuprof' has no attribute 'profil'"):
        _ = gpuprof.profil
