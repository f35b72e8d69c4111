"""Runs a script, module or command string in this process as `python` would."""

import builtins
import importlib.machinery
import importlib.util
import io
import os
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuprof.collectors.errors import (
    TORCH,
    CommandError,
    MissingDependencyError,
    problem_of,
)


@dataclass(frozen=True)
class RunTarget:
    """What to run: `kind` is script, module or command; `value` its path, name or source."""

    kind: str
    value: str
    arguments: tuple[str, ...]

    @property
    def title(self) -> str:
        """A short name for reports and file names."""
        if self.kind == "script":
            return Path(self.value).name
        return f"-m {self.value}" if self.kind == "module" else "-c"

    @property
    def stem(self) -> str:
        """A name that is fit for a file."""
        if self.kind == "script":
            return Path(self.value).stem
        return self.value if self.kind == "module" else "command"


@dataclass(frozen=True)
class PreparedProgram:
    code: types.CodeType
    main: types.ModuleType
    argv0: str
    path0: str


def prepare(target: RunTarget) -> PreparedProgram:
    """Find and compile the target. Raises `CommandError` where it cannot be run.

    A syntax error is the script's own and propagates as `SyntaxError`.
    """
    if target.kind == "command":
        return _command(target.value)
    return _script(target.value) if target.kind == "script" else _module(target.value)


def refuse_without_torch(program: PreparedProgram) -> None:
    """Raise `MissingDependencyError` where `program` has no torch to import."""
    beside = importlib.machinery.PathFinder.find_spec("torch", [program.path0])
    if beside is None and importlib.util.find_spec("torch") is None:
        raise MissingDependencyError("torch", "profile a program", TORCH)


def execute(program: PreparedProgram, arguments: Sequence[str]) -> None:
    """Run a prepared program as `__main__`. Whatever it raises propagates."""
    sys.argv = [program.argv0, *arguments]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = program.path0
    sys.modules["__main__"] = program.main
    exec(program.code, program.main.__dict__)


def _script(value: str) -> PreparedProgram:
    path = Path(value)
    if path.is_dir():
        main = path / "__main__.py"
        if not main.is_file():
            raise CommandError(f"{value} is a folder without __main__.py", exit_code=2)
        return _compile_file(main, argv0=value, path0=str(path.resolve()))
    if not path.is_file():
        raise CommandError(f"{value}: no such file; give a script, -m module or -c code", 2)
    return _compile_file(path, argv0=value, path0=str(path.resolve().parent))


def _compile_file(path: Path, *, argv0: str, path0: str) -> PreparedProgram:
    # As python does, so that a script that changes its folder still finds itself.
    file_name = os.path.abspath(path)
    try:
        with io.open_code(file_name) as file:
            source = file.read()
    except OSError as error:
        # What fails only when read does not tell its file.
        raise CommandError(f"{path} cannot be read: {problem_of(error)}", exit_code=2) from error
    code = compile(source, file_name, "exec", dont_inherit=True)
    main = _main_module()
    main.__file__ = file_name
    main.__cached__ = None  # type: ignore[attr-defined]
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", file_name)
    return PreparedProgram(code, main, argv0, path0)


def _command(source: str) -> PreparedProgram:
    code = compile(source, "<string>", "exec", dont_inherit=True)
    return PreparedProgram(code, _main_module(), "-c", "")


def _module(name: str) -> PreparedProgram:
    # python -m looks in the working directory first.
    path0 = os.getcwd()
    sys.path[0] = path0
    spec = _find_main(name)
    if spec is None or spec.loader is None or not hasattr(spec.loader, "get_code"):
        raise CommandError(f"no module named {name}", exit_code=1)
    code = spec.loader.get_code(spec.name)
    main = _main_module()
    main.__spec__ = spec
    main.__loader__ = spec.loader
    main.__package__ = spec.parent
    main.__file__ = spec.origin
    return PreparedProgram(code, main, spec.origin or name, path0)


def _find_main(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is not None and spec.submodule_search_locations is not None:
        return _find_main(f"{name}.__main__")
    return spec


def _main_module() -> types.ModuleType:
    main = types.ModuleType("__main__")
    # The module, not its dictionary as in imported modules: __main__ is special there.
    main.__dict__["__builtins__"] = builtins
    return main
