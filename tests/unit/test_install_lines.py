"""Every line that installs something names this distribution, a path, a wheel or a known package.

`gpuprof` on the package index is another project: a line that names it runs its code.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpuprof.collectors.distribution import DISTRIBUTION, Extra, install_command, with_extra

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DEPENDENCIES = [*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines)]
# The last two are named by docs and benchmarks, and are no dependencies.
KNOWN = {canonicalize_name(Requirement(line).name) for line in DEPENDENCIES} | {
    DISTRIBUTION,
    "apache-otava",
    "holistictraceanalysis",
}
TEXT = {".cfg", ".ini", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml", ""}
NOT_OURS = {"build", "dist", "tests", "__pycache__"}
# Here the requirements are parameters.
TEMPLATES = {"collectors/distribution.py"}

INSTALLER = re.compile(
    r"\b(?:pip[x3]?|uv (?:pip|tool)) install\b(?P<arguments>[^\n`\";#&|()]*)"
    r"|\buv add\b(?P<added>[^\n`\";#&|()]*)"
)
WITH_EXTRA = re.compile(r"\bgpuprof[\w.-]*\[[\w, -]+\]")
OPTIONS_WITH_A_VALUE = {"-c", "--constraint", "-r", "--requirement", "-t", "--target"}


def text_files() -> Iterator[Path]:
    for top in sorted(ROOT.iterdir()):
        if top.name == ".ci" or (top.name[0] != "." and top.name not in NOT_OURS):
            for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
                parts = path.relative_to(ROOT).parts
                if path.is_file() and path.suffix in TEXT and not NOT_OURS.intersection(parts):
                    yield path


def install_lines(text: str) -> list[str]:
    """What follows "install" in each line of `text` that installs something."""
    return [
        (found["arguments"] or found["added"] or "").strip() for found in INSTALLER.finditer(text)
    ]


def problems(arguments: str) -> list[str]:
    """What is wrong with the arguments of one installing line."""
    words = iter(shlex.split(arguments))
    positional = []
    for word in words:
        if word in OPTIONS_WITH_A_VALUE:
            next(words)
        elif not word.startswith("-"):
            positional.append(word)
    if not positional:
        return ["names nothing"]
    return [problem for word in positional if (problem := problem_of(word))]


def problem_of(word: str) -> str:
    if re.match(r"git\+\w+://", word) or word.endswith(".whl"):
        return ""
    local = re.fullmatch(r"\.[\w./]*(?:\[(?P<extras>.+)\])?", word)
    if local:
        unknown = set(filter(None, (local["extras"] or "").split(","))) - EXTRAS.keys()
        return f"unknown extras {unknown}" if unknown else ""
    try:
        requirement = Requirement(word)
    except InvalidRequirement:
        return f"{word} is no requirement"
    name = canonicalize_name(requirement.name)
    if name not in KNOWN:
        return f"{name} is not ours"
    if name == DISTRIBUTION and requirement.extras - EXTRAS.keys():
        return f"unknown extras {requirement.extras - EXTRAS.keys()}"
    return ""


def test_the_distribution_and_its_extras_are_those_of_the_project() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert {*get_args(Extra), "dev"} == EXTRAS.keys()
    assert list(PROJECT["scripts"]) == ["gpuprof"]


def test_every_install_line_of_the_repository_resolves() -> None:
    found = {
        f"{path.relative_to(ROOT)}: install {line}": problems(line)
        for path in text_files()
        if str(path.relative_to(ROOT)) not in TEMPLATES
        for line in install_lines(path.read_text(encoding="utf-8"))
    }
    assert {line: wrong for line, wrong in found.items() if wrong} == {}
    files = {line.partition(":")[0] for line in found}
    assert {"README.md", "Makefile", "docs/ci/github.yml", "docs/ci/gitlab.yml"} <= files


def test_every_requirement_with_extras_is_ours_and_has_them() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {requirement}": problem_of(requirement)
        for path in text_files()
        for requirement in WITH_EXTRA.findall(path.read_text(encoding="utf-8"))
    }
    assert {line: wrong for line, wrong in found.items() if wrong} == {}
    assert any(line.startswith("docs/doctor.md") for line in found)


@pytest.mark.parametrize("extra", get_args(Extra))
def test_the_lines_that_messages_give_resolve(extra: Extra) -> None:
    line = install_command(with_extra(extra))
    assert line == f"pip install '{DISTRIBUTION}[{extra}]'"
    (arguments,) = install_lines(line)
    assert problems(arguments) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("- pip install -e . gpuprof", "gpuprof is not ours"),
        ("run: `pipx install 'gpuprof[cuda]'`", "gpuprof is not ours"),
        ("uv pip install -q 'gpuprof-roofline[gpu]'", "unknown extras {'gpu'}"),
        ("pip install -e '.[dev,docs]'", "unknown extras {'docs'}"),
        ("uv add gpuprof", "gpuprof is not ours"),
        ("pip install -c constraints.txt", "names nothing"),
        ("pip3 install gpuprof==0.7.1 # pinned", "gpuprof is not ours"),
        ("pip install gpuprof_roofline", ""),
        ("pip install dist/gpuprof_roofline-0.1.0-py3-none-any.whl", ""),
        ("uv tool install git+https://host.example/gpuprof.git@v1", ""),
    ],
)
def test_a_line_that_installs_a_stranger_is_found(line: str, problem: str) -> None:
    (arguments,) = install_lines(line)
    assert problems(arguments) == ([problem] if problem else [])
