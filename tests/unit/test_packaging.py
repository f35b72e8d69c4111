"""What is built from this checkout holds everything, and runs where nothing else of it is.

Built without isolation, and so without a network: setuptools comes from the environment.
"""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from gpuprof._version import __version__

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path.parent.name for path in ROOT.glob("src/gpuprof/*/__init__.py"))
# Left in the folders by tools, or by an editor.
NOT_SHIPPED = ("__pycache__", "*.pyc", "*~")


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
    for name in ("src", *SOURCES):
        shutil.copytree(
            ROOT / name,
            checkout / name,
            symlinks=True,
            ignore=shutil.ignore_patterns(*NOT_SHIPPED, "*.egg-info"),
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.suffix: path for path in (checkout / "dist").iterdir()}


def test_the_wheel_holds_every_file_and_nothing_else(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built[".whl"]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        sizes = {info.filename: info.file_size for info in wheel.infolist()}
        licenses = [name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]
    assert names == expected()
    assert len(licenses) == 1
    template = "gpuprof/reports/html/templates/report.html"
    assert sizes[template] == (ROOT / template.removeprefix("gpuprof/")).stat().st_size


def test_the_sdist_holds_every_file_as_a_file(built: dict[str, Path]) -> None:
    with tarfile.open(built[".gz"]) as sdist:
        members = {member.name.split("/", 1)[-1]: member for member in sdist.getmembers()}
    missing = {f"src/{name}" for name in expected()} - members.keys()
    assert missing == set()
    assert not any(member.issym() or member.islnk() for member in members.values())
    assert {"pyproject.toml", "README.md", "LICENSE"} <= members.keys()


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
