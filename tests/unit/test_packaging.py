"""What is built from this checkout holds everything, and runs where nothing else of it is.

Built without isolation, and so without a network: setuptools comes from the environment.
"""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import get_args

import pytest
from checkout import needs_checkout

from gpuprof._version import __version__
from gpuprof.collectors.distribution import DISTRIBUTION, Extra

pytestmark = needs_checkout
ROOT = Path(__file__).parents[2]
SOURCES = sorted(path.parent.name for path in ROOT.glob("src/gpuprof/*/__init__.py"))
# Left in the folders by tools, or by an editor.
NOT_SHIPPED = ("__pycache__", "*.pyc", "*~", "*.so")
NOT_COPIED = (".*", "*.egg-info", "build", "dist", "demo.gpuprof")
# What a source distribution has beside the package.
BESIDE = ("benchmarks", "docs", "examples", "scripts", "tests")
FILES = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "action.yml",
    "constraints.txt",
    "noxfile.py",
    "pyproject.toml",
    "setup.py",
)


def expected() -> set[str]:
    """Names in the package of every file in the source folders."""
    links = {
        f"gpuprof/{folder}/{path.relative_to(ROOT / folder)}": path
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*")
    }
    own = {f"gpuprof/{path.name}": path for path in (ROOT / "src" / "gpuprof").iterdir()}
    return {
        name
        for name, path in {**links, **own}.items()
        if path.is_file()
        and "__pycache__" not in path.parts
        and not any(path.match(pattern) for pattern in NOT_SHIPPED)
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An sdist of this checkout, and the wheel that is built from that sdist."""
    checkout = tmp_path_factory.mktemp("checkout")
    shutil.copytree(
        ROOT,
        checkout,
        symlinks=True,
        ignore=shutil.ignore_patterns(*NOT_SHIPPED, *NOT_COPIED),
        dirs_exist_ok=True,
    )
    # Left by a run of the tests, or by `make demo`: none of it is shipped.
    (checkout / "tests" / "__pycache__").mkdir()
    (checkout / "tests" / "__pycache__" / "conftest.pyc").write_bytes(b"")
    (checkout / "report.html").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.suffix: path for path in (checkout / "dist").iterdir()}


@pytest.fixture(scope="module")
def metadata(built: dict[str, Path]) -> Message:
    """The metadata of the wheel; its payload is the page that the index shows."""
    with zipfile.ZipFile(built[".whl"]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_string(wheel.read(name).decode())


def test_the_wheel_holds_every_file_and_nothing_else(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built[".whl"]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        sizes = {info.filename: info.file_size for info in wheel.infolist()}
        licenses = [name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]
    compiled = {name for name in names if name.endswith((".so", ".pyd"))}
    assert names - compiled == expected()
    assert len(licenses) == 1
    template = "gpuprof/reports/html/templates/report.html"
    assert sizes[template] == (ROOT / template.removeprefix("gpuprof/")).stat().st_size


def test_the_sdist_holds_every_file_as_a_file(built: dict[str, Path]) -> None:
    with tarfile.open(built[".gz"]) as sdist:
        members = {member.name.split("/", 1)[-1]: member for member in sdist.getmembers()}
    beside = {
        str(path.relative_to(ROOT))
        for folder in BESIDE
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
        and not any(path.match(pattern) for pattern in NOT_SHIPPED)
        and "__pycache__" not in path.parts
    }
    wanted = {f"src/{name}" for name in expected()} | beside | set(FILES)
    found = {name for name, member in members.items() if member.isfile()}
    assert wanted - found == set()
    assert {name for name in found - wanted if ".egg-info/" not in name} == {
        "MANIFEST.in",
        "PKG-INFO",
        "setup.cfg",
    }
    assert not any(member.issym() or member.islnk() for member in members.values())


def test_the_metadata_says_whose_what_and_for_whom(metadata: Message) -> None:
    assert metadata["Name"] == DISTRIBUTION
    assert metadata["Version"] == __version__
    assert metadata["Author"]
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Keywords"]
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert set(metadata.get_all("Provides-Extra", [])) == {*get_args(Extra), "dev"}


def test_the_page_on_the_index_needs_no_file_beside_it(metadata: Message) -> None:
    page = metadata.get_payload()
    assert isinstance(page, str)
    targets = re.findall(r"\]\(([^)]*)\)", page) + re.findall(r"(?:src|href)=\S+", page)
    assert [target for target in targets if not target.startswith("https://")] == []
    assert "![" not in page
    assert "<!--" not in page
    # All else is README.md, word by word, and each link is the path of a file that is shipped.
    assert "details (docs/numbers.md)" in page
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"```.*?```", readme, re.DOTALL)
    assert len(code) > 3
    assert [block for block in code if block not in page] == []
    paths = re.findall(r" \(([\w./]+\.md)\)", page)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).is_file()] == []


def test_the_wheel_runs_from_the_folder_it_is_installed_to(
    built: dict[str, Path], tmp_path: Path
) -> None:
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run(
        [sys.executable, *pip, "--target", str(tmp_path / "site"), str(built[".whl"])],
        check=True,
        capture_output=True,
    )
    code = (
        "import sys, runpy, gpuprof; print(gpuprof.__file__); "
        "sys.argv[1:] = ['--version']; runpy.run_module('gpuprof', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    where, version = done.stdout.splitlines()
    assert where == str(tmp_path / "site" / "gpuprof" / "__init__.py")
    assert version == f"gpuprof {__version__}"


def test_an_installed_report_needs_nothing_of_the_checkout(
    built: dict[str, Path], tmp_path: Path
) -> None:
    with zipfile.ZipFile(built[".whl"]) as wheel:
        wheel.extractall(tmp_path / "site")
    capture = ROOT / "tests" / "data" / "captures" / "h200_llama_block"
    done = subprocess.run(
        [sys.executable, "-m", "gpuprof", "report", str(capture), "-o", "report.html"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "gpuprof: wrote report.html\n")
    assert "H200" in (tmp_path / "report.html").read_text()
