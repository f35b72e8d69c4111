"""Where the targets stand in the source, for whatever points at a line."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpuprof.profiler.configuration.targets import Target
from gpuprof.roofline.gate.result import Place


def places_of(targets: Iterable[Target], folder: Path) -> dict[str, Place]:
    """The place of each target of the program in `folder`, and of each test, by benchmark.

    What is not a file below `folder`, such as a reference kernel, has none.
    """
    found = {}
    for target in targets:
        file = _program(target, folder)
        if file is not None:
            found[target.name] = Place(file=file)
        for selected in target.pytest:
            for path in _test_files(folder / selected.partition("::")[0]):
                inside = _inside(path, folder)
                if inside is None:
                    continue
                found.setdefault(target.name, Place(file=inside))
                for name, line in _tests(path):
                    found[f"{target.name}/{path.stem}.{name}"] = Place(file=inside, line=line)
    return found


def _program(target: Target, folder: Path) -> str | None:
    if target.script is not None:
        return _inside(folder / target.script, folder)
    if target.module is not None:
        stem = folder.joinpath(*target.module.split("."))
        candidates = (stem.with_name(f"{stem.name}.py"), stem / "__main__.py")
        return next((_inside(path, folder) for path in candidates if path.is_file()), None)
    return None


def _inside(path: Path, folder: Path) -> str | None:
    path, folder = path.resolve(), folder.resolve()
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else None


def _test_files(path: Path) -> Iterable[Path]:
    if path.is_dir():
        return sorted({*path.rglob("test_*.py"), *path.rglob("*_test.py")})
    return (path,) if path.is_file() else ()


def _tests(path: Path) -> Iterator[tuple[str, int]]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Running it tells what is wrong with it.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            yield node.name, node.lineno
