"""Starts the real command in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

GpuprofCommand = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of this test session's own, so that nothing depends on earlier runs."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def gpuprof_environment(cache_folder: Path) -> dict[str, str]:
    """The environment of a `gpuprof` process under test."""
    return {**os.environ, "XDG_CACHE_HOME": str(cache_folder), "COLUMNS": "80"}


@pytest.fixture
def gpuprof(tmp_path: Path, gpuprof_environment: dict[str, str]) -> GpuprofCommand:
    """Run `gpuprof ARGUMENTS` in the test's own folder and return what it printed."""

    def run(*arguments: str, timeout_s: float = 120) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "gpuprof", *arguments],
            cwd=tmp_path,
            env=gpuprof_environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    return run
