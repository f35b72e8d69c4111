"""Checks with other releases of torch than that of `make test` (docs/torch_versions.md).

.venv/bin/nox -s oldest              # the CPU tests with the oldest torch and the oldest polars
.venv/bin/nox -s oldest -- -k gate   # some of them
.venv/bin/nox -s resolve             # do the extras resolve with each torch?
.venv/bin/nox -s pythons             # the unit tests with each Python that is installed
"""

import nox

OLDEST = "2.6.0"
# As pyproject.toml promises: newer ones have arguments that this one refuses.
OLDEST_POLARS = "1.31.0"
SUPPORTED = (
    *(OLDEST, "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.0", "2.13.0", "2.14.1"),
)
# Later ones come for CUDA 13 from the package index, whose drivers load what `cuda` compiles.
WITH_CUDA_12 = ("2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0")

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")

nox.options.sessions = ["oldest"]


@nox.session
def oldest(session: nox.Session) -> None:
    """Run the tests with the oldest supported torch and polars, in an environment of its own."""
    session.install(f"torch=={OLDEST}", f"polars=={OLDEST_POLARS}", "-e", ".[dev,ncu]")
    session.run("python", "-m", "pytest", *(session.posargs or ("-n", "2", "--dist", "loadfile")))


@nox.session
@nox.parametrize("torch", SUPPORTED)
def resolve(session: nox.Session, torch: str) -> None:
    """Let pip resolve the extras beside a torch, from metadata; nothing is installed."""
    session.install("--upgrade", "pip")
    for extra in ("cuda", *(("cuda12",) if torch in WITH_CUDA_12 else ())):
        session.run(
            *("python", "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"),
            *(f"torch=={torch}", f".[{extra},ncu]"),
        )


@nox.session(python=PYTHONS)
def pythons(session: nox.Session) -> None:
    """Run the unit tests with one release of Python; nox says which are not installed."""
    session.install("-c", "constraints.txt", "-e", ".[dev,ncu]")
    session.run("python", "-m", "pytest", *(session.posargs or ("-n", "2", "tests/unit")))
