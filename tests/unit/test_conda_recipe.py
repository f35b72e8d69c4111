"""The conda recipe says what pyproject.toml says."""

import sys
from pathlib import Path

import yaml
from checkout import needs_checkout
from packaging.requirements import Requirement

import gpuprof

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
# Where conda-forge has another name than the package index.
NAMES = {"isal": "python-isal", "torch": "pytorch"}


@needs_checkout
def test_the_recipe_is_of_this_version_and_needs_the_same_packages() -> None:
    recipe = yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert recipe["context"]["version"] == gpuprof.__version__
    assert recipe["package"]["name"] == project["name"]
    wanted = [f"python {project['requires-python']}"]
    for line in project["dependencies"]:
        needed = Requirement(line)
        wanted.append(f"{NAMES.get(needed.name, needed.name)} {needed.specifier}")
    assert recipe["requirements"]["run"] == wanted
    (command,) = recipe["build"]["python"]["entry_points"]
    assert command == f"gpuprof = {project['scripts']['gpuprof']}"
