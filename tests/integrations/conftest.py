"""Runs programs of trainers, and the command, in processes of their own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fork_server import ForkServer, fork_server
from trainer_programs import PROGRAMS, ProfiledRun, RunPython

from gpuprof.profiler.captures import load_analysis
from gpuprof.roofline.analysis import Analysis


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """One interpreter for all programs under test that has torch ready."""
    with fork_server() as started:
        yield started


@pytest.fixture
def python(tmp_path: Path, server: ForkServer) -> RunPython:
    """Run `python ARGUMENTS` in the test's own folder; what it printed on stdout."""

    def run(*arguments: str | Path, **variables: str) -> str:
        command = tuple(map(str, arguments))
        # What is downloaded would make a test need a network.
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", **variables}
        if command[0] == "-c" or command[:2] == ("-m", "torch.distributed.run"):
            done = subprocess.run(
                [sys.executable, *command],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        else:
            done = server.run(*command, folder=tmp_path, environment=environment, timeout_s=280)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def profiled(tmp_path: Path, python: RunPython) -> ProfiledRun:
    """`gpuprof run PROGRAM`, unedited; the analysis. `before` are its options, `launcher` python's.

    Without `before` a run ends with its profiled steps, and is stored once. Ceilings of this
    machine are not measured: that takes seconds and is tested elsewhere.
    """

    def run(
        program: str,
        *arguments: str,
        before: tuple[str, ...] = ("--stop-after",),
        launcher: tuple[str, ...] = (),
    ) -> Analysis:
        output = tmp_path / "run.gpuprof"
        options = ("--no-ceilings", "-q", "-o", str(output), *before)
        python(*launcher, "-m", "gpuprof", "run", *options, PROGRAMS / program, *arguments)
        return load_analysis(output)

    return run
