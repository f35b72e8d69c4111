"""One public type name, one thing."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("collectors", "roofline", "reports", "reference_kernels", "profiler")


def type_names(file: Path) -> Iterator[tuple[str, str]]:
    """Public classes and aliases of types in a module, with what each stands for."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            yield node.name, f"class in {file}, line {node.lineno}"
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                # Constants are upper case and variables lower.
                if isinstance(target, ast.Name) and target.id != target.id.upper():
                    if target.id[:1].isupper():
                        yield target.id, ast.unparse(node.value)


def test_no_public_type_name_stands_for_two_things() -> None:
    meanings: dict[str, dict[str, str]] = defaultdict(dict)
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for name, meaning in type_names(file):
                if not name.startswith("_"):
                    meanings[name].setdefault(meaning, str(file.relative_to(ROOT)))
    twice = {name: list(found.values()) for name, found in meanings.items() if len(found) > 1}
    assert "Analysis" in meanings
    assert twice == {}
