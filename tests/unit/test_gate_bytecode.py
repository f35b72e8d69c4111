"""Where nobody keeps bytecode, the processes of a gate share it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuprof.profiler.gate import bytecode
from gpuprof.profiler.gate.bytecode import kept_bytecode
from gpuprof.profiler.gate.sides import SideProgram

KEPT, NEVER = "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that is found in place of torch, without bytecode, in an environment of its own."""
    path = tmp_path / "library" / "torch" / "__init__.py"
    path.parent.mkdir(parents=True)
    path.touch()
    spec = type("Spec", (), {"origin": str(path)})()
    monkeypatch.setattr(bytecode, "find_spec", lambda name: spec)
    monkeypatch.delenv(KEPT, raising=False)
    monkeypatch.delenv(NEVER, raising=False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    return path


def test_it_is_kept_where_the_environment_forbids_it(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(NEVER, "1")
    (tmp_path / "imported.py").touch()
    with kept_bytecode(sys.executable) as variables:
        folder = variables[KEPT]
        assert folder is not None
        program = SideProgram(
            side="A",
            label="A",
            folder=tmp_path,
            targets=(),
            python=sys.executable,
            python_path=(tmp_path,),
            variables=variables,
        )
        environment = program.environment()
        assert NEVER not in environment
        subprocess.run([sys.executable, "-c", "import imported"], env=environment, check=True)
        assert list(Path(folder).rglob("imported.*.pyc"))
    assert not Path(folder).exists()
    assert not (tmp_path / "__pycache__").exists()


def test_it_is_kept_where_the_folder_forbids_it(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != source.parent)
    with kept_bytecode(sys.executable) as variables:
        assert variables.keys() == {KEPT, NEVER}


@pytest.mark.parametrize("kept", ["written", "writable", "elsewhere", "other interpreter", "none"])
def test_nothing_is_set_where_it_is_kept_or_not_known(
    kept: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = sys.executable
    if kept != "writable":
        monkeypatch.setenv(NEVER, "1")
    if kept == "written":
        cached = source.parent / "__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc"
        cached.parent.mkdir()
        cached.touch()
    elif kept == "elsewhere":
        monkeypatch.setenv(KEPT, "/somewhere")
    elif kept == "other interpreter":
        python = "python3"
    elif kept == "none":
        monkeypatch.setattr(bytecode, "find_spec", lambda name: None)
    with kept_bytecode(python) as variables:
        assert variables == {}
