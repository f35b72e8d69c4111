"""Runs the real command in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from chromium import Chromium, started
from fork_server import ForkServer, fork_server

from gpuprof.collectors.live.fingerprint import cpu_device
from gpuprof.collectors.manifest import Calibration, MeasuredCeiling
from gpuprof.profiler.machine import calibration_cache

GpuprofCommand = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of this test session's own, which holds ceilings for this machine.

    Measuring them takes seconds and is tested by itself; these are round numbers.
    """
    folder = tmp_path_factory.mktemp("cache")
    ceilings = (
        MeasuredCeiling(
            kind="compute", name="fp32", precision="fp32", rate=1e11, spread=0.01, repeats=3
        ),
        MeasuredCeiling(
            kind="memory", name="DRAM", level="DRAM", rate=1e10, spread=0.01, repeats=3
        ),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        # Some programs under test have one thread.
        for threads in {1, torch.get_num_threads()}:
            calibration_cache.store(
                Calibration(
                    device=cpu_device(),
                    torch=str(torch.__version__),
                    threads=threads,
                    measured_ns=0,
                    ceilings=ceilings,
                )
            )
    return folder


@pytest.fixture
def gpuprof_environment(cache_folder: Path) -> dict[str, str]:
    """The environment of a `gpuprof` process under test."""
    return {**os.environ, "XDG_CACHE_HOME": str(cache_folder), "COLUMNS": "80"}


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """One interpreter for all programs under test that has torch ready."""
    with fork_server() as started_server:
        yield started_server


@pytest.fixture
def gpuprof(
    tmp_path: Path, gpuprof_environment: dict[str, str], server: ForkServer
) -> GpuprofCommand:
    """Run `gpuprof ARGUMENTS` in the test's own folder and return what it printed."""

    def run(*arguments: str, timeout_s: float = 120) -> "subprocess.CompletedProcess[str]":
        return server.run(
            "-m",
            "gpuprof",
            *arguments,
            folder=tmp_path,
            environment=gpuprof_environment,
            timeout_s=timeout_s,
        )

    return run


@pytest.fixture
def cold_gpuprof(tmp_path: Path, gpuprof_environment: dict[str, str]) -> GpuprofCommand:
    """The same in a new interpreter: see `fork_server` for what needs one."""

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


@pytest.fixture(scope="session")
def running_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One headless Chromium for all tests of pages."""
    with started(tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


@pytest.fixture
def browser(running_browser: Chromium) -> Iterator[Chromium]:
    """The same, whose last page is closed behind each test: some would keep a core half busy."""
    yield running_browser
    running_browser.leave()
