"""Runs programs of trainers, and the command, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from trainer_programs import PROGRAMS, ProfiledRun, RunPython

import gpuprof
from gpuprof.roofline.analysis import Analysis


@pytest.fixture
def python(tmp_path: Path) -> RunPython:
    """Run `python ARGUMENTS` in the test's own folder; what it printed on stdout."""

    def run(*arguments: str | Path, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=tmp_path,
            # What is downloaded would make a test need a network.
            env={**os.environ, "HF_HUB_OFFLINE": "1", **variables},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def profiled(tmp_path: Path, python: RunPython) -> ProfiledRun:
    """`gpuprof run PROGRAM`, unedited; the analysis. `before` are its options, `launcher` python's.

    Ceilings of this machine are not measured: that takes seconds and is tested elsewhere.
    """

    def run(
        program: str,
        *arguments: str,
        before: tuple[str, ...] = (),
        launcher: tuple[str, ...] = (),
    ) -> Analysis:
        output = tmp_path / "run.gpuprof"
        options = ("--no-ceilings", "-q", "-o", str(output), *before)
        python(
            *(*launcher, "-m", "gpuprof", "run", *options),
            *(PROGRAMS / program, *arguments),
        )
        return gpuprof.analyze(gpuprof.load(output))

    return run
