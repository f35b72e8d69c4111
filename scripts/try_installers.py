"""Install the built wheel as users do, with pipx, uvx and pip, and render its conda recipe.

    python scripts/try_installers.py [--constraints FILE] [--keep FOLDER]

Each way gets a fresh environment in a temporary folder, prints gpuprof's version and the first line
of a summary of a recorded capture. `--constraints` keeps an installer from taking a CUDA build of
torch of several GB (constraints.txt does). Prints what was installed and how long it took; exits 1
where one fails. The index is the one that pip and uv are told of.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
CAPTURE = ROOT / "tests" / "data" / "captures" / "h200_llama_block"
VERSIONS = (
    "import sys; from importlib.metadata import version; "
    "print(sys.version.split()[0], *(f'{n} {version(n)}' for n in ('torch', 'polars', 'numpy')))"
)
RENDER = """
import sys
from rattler_build import Stage0Recipe
(variant,) = Stage0Recipe.from_file(sys.argv[1]).render()
print(variant.recipe.package.name, variant.recipe.package.version)
"""


def run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """What `command` prints. Raises `RuntimeError` with the end of its errors."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def ways(folder: Path, wheel: Path, constraints: Path | None) -> dict[str, list[list[str]]]:
    """The commands of each way; `folder` gets the environments."""
    tools, own = folder / "tools" / "bin", folder / "venv"
    capped = [] if constraints is None else ["--constraint", str(constraints)]
    for_pipx = ["--pip-args", " ".join(capped)] if capped else []
    for_uv = [] if constraints is None else ["--constraints", str(constraints)]
    pipx = [str(tools / "pipx"), "run", *for_pipx, "--spec", str(wheel), "gpuprof"]
    uvx = [str(tools / "uvx"), *for_uv, "--from", str(wheel)]
    read = ["summary", str(CAPTURE)]
    return {
        "pip": [
            [sys.executable, "-m", "venv", str(own)],
            [str(own / "bin" / "python"), "-m", "pip", "install", "-q", *capped, str(wheel)],
            [str(own / "bin" / "python"), "-c", VERSIONS],
            [str(own / "bin" / "gpuprof"), *read],
        ],
        "pipx run": [[*pipx, "--version"], [*pipx, *read]],
        "uvx": [[*uvx, "python", "-c", VERSIONS], [*uvx, "gpuprof", *read]],
        "conda recipe": [
            [str(tools / "python"), "-c", RENDER, str(ROOT / "packaging/conda/recipe.yaml")]
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--constraints", type=Path)
    parser.add_argument("--keep", type=Path, help="use this folder, and leave it there")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.keep or Path(temporary)).absolute()
        environment = {"PIPX_HOME": str(folder / "pipx"), "UV_CACHE_DIR": str(folder / "uv")}
        tools = folder / "tools"
        run([sys.executable, "-m", "venv", str(tools)], {})
        run(
            [
                str(tools / "bin" / "pip"),
                "install",
                "-q",
                "build",
                "pipx",
                "uv",
                "py-rattler-build",
            ],
            {},
        )
        dist = str(folder / "dist")
        run([str(tools / "bin" / "python"), "-m", "build", "-w", "-o", dist, str(ROOT)], {})
        (wheel,) = Path(dist).glob("*.whl")
        constraints = options.constraints and options.constraints.absolute()
        for name, commands in ways(folder, wheel, constraints).items():
            begun = time.perf_counter()
            try:
                said = [run(command, environment).strip() for command in commands]
            except RuntimeError as error:
                failed = 1
                print(f"FAILED  {name}: {error}", flush=True)
                continue
            took = time.perf_counter() - begun
            print(f"ok      {name}, {took:.0f} s", flush=True)
            for lines in filter(None, said):
                print(f"        {lines.splitlines()[0]}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
