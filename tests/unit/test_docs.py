"""The documentation names what there is, its examples hold, and its links lead somewhere."""

import argparse
import doctest
import inspect
import re
import sys
from pathlib import Path

import pytest
from checkout import needs_checkout

import gpuprof
from gpuprof.collectors.live.fingerprint import ENVIRONMENT_VARIABLES
from gpuprof.profiler.cli import COMMANDS, Command
from gpuprof.roofline.cost_models import registry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_the_api_page_has_a_section_for_each_public_name() -> None:
    headings = re.findall(r"^## gpuprof\.(\S+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(gpuprof.__all__)


def test_the_examples_of_the_api_page_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # The example that registers a cost model must not do so for other tests.
    monkeypatch.setattr(registry, "_models", dict(registry._models))
    failures, attempts = doctest.testfile(str(DOCS / "api.md"), module_relative=False)
    assert attempts >= 20
    assert failures == 0


def test_examples_are_on_pages_whose_examples_are_run() -> None:
    with_examples = {name_of(page) for page in PAGES if ">>> " in page.read_text()}
    # test_cost_models_docs.py runs those of numbers.md.
    assert with_examples == {"docs/api.md", "docs/numbers.md"}


@needs_checkout
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = page if not path else page.parent / path
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            assert anchor in {anchor_of(heading) for heading in headings}, target


def anchor_of(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_page_on_privacy_names_every_environment_variable_that_is_stored() -> None:
    table = re.findall(
        r"^\| [\w ]+ \| (`[A-Z].*) \|$", (DOCS / "privacy.md").read_text(), re.MULTILINE
    )
    named = re.findall(r"`([A-Z0-9_]+)`", " ".join(table))
    assert sorted(named) == sorted(ENVIRONMENT_VARIABLES)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_command_has_a_page_that_names_its_options(command: Command) -> None:
    # Without a name it would be called after the process that runs the tests.
    parser = argparse.ArgumentParser(prog="gpuprof", add_help=False)
    command.prepare_parser(parser)
    parser.usage = None
    options = re.findall(r"(?<=[\[ ])--?[a-z][a-z-]*", parser.format_usage())
    page = (DOCS / f"{command.name}.md").read_text()
    assert [option for option in options if f"`{option}" not in page] == []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_text_of_a_commands_help_fits_80_columns(command: Command) -> None:
    text = inspect.getdoc(command) or ""
    assert 0 < max(len(line) for line in text.splitlines()) <= 80


def test_the_gallery_shows_every_report_that_the_site_has() -> None:
    entries = tomllib.loads((DOCS / "site" / "gallery.toml").read_text())
    shown = re.findall(r"^!\[.+\]\(gallery/(\w+)\.webp\)$", (DOCS / "gallery.md").read_text(), re.M)
    assert sorted(shown) == sorted(entries)
    for name, entry in entries.items():
        assert (DOCS / "gallery" / f"{name}.webp").stat().st_size < 200_000
        assert all((ROOT / path).exists() for path in entry["paths"])


def test_the_tutorial_has_every_program_that_was_recorded() -> None:
    groups = tomllib.loads((DOCS / "site" / "tutorial.toml").read_text())["group"]
    programs = [program for group in groups for program in group["program"]]
    recorded = {folder.name for folder in (ROOT / "tests" / "data" / "diagnosis").iterdir()}
    assert sorted(program["name"] for program in programs) == sorted(recorded)
    page = (DOCS / "tutorial.md").read_text()
    assert [one["title"] for one in programs if f"### {one['title']}\n" not in page] == []
    # It is written anew where it shows a program that has changed since.
    blocks = re.findall(r"^```python\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL)
    sources = {
        (ROOT / "examples" / "diagnosis" / f"{one['name']}.py")
        .read_text()
        .replace("# expected here", "# <--")
        for one in programs
    }
    assert len(blocks) == len(programs)
    assert [block for block in blocks if not any(block in source for source in sources)] == []


def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


@needs_checkout
def test_every_path_that_contributing_names_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"(?<![\w./])((?:\w+/)+[\w.]*)", text)
    assert len(named) > 15
    assert [
        path for path in named if not path.startswith(".venv") and not (ROOT / path).exists()
    ] == []
