"""Writes docs/schemas: what every command answers as JSON.

    python scripts/write_schemas.py

Refuses where a schema lost a field, or a field has another type, while its version is the same:
raise it in reports/json_answers/schemas.py then.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuprof.reports.json_answers.rendering import published_schema
from gpuprof.reports.json_answers.schemas import SCHEMAS

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"
# What a reader of JSON does not see.
_WORDS = ("description", "title", "default")


def main() -> int:
    """Write every file, or none; returns the exit code."""
    written = {}
    broken = []
    for schema in SCHEMAS:
        file = FOLDER / f"{schema.name}.schema.json"
        new = published_schema(schema)
        if file.exists():
            old = json.loads(file.read_text())
            if old["title"] == new["title"]:
                broken += [f"{schema.name}: {place}" for place in breaks(old, new)]
        written[file] = new
    for one in broken:
        print(f"{one}: raise the schema's version", file=sys.stderr)
    if broken:
        return 1
    FOLDER.mkdir(exist_ok=True)
    for file, new in written.items():
        file.write_text(json.dumps(new, indent=1, ensure_ascii=False) + "\n")
    return 0


def breaks(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Where a program that reads what `old` describes would stumble over what `new` does."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in old.items():
            below = f"{place}.{name}" if place else name
            if place.endswith("properties") or name not in _WORDS:
                if name not in new:
                    yield f"{below} is gone"
                else:
                    yield from breaks(value, new[name], below)
    elif place.endswith(("required", "enum")) and isinstance(old, list) and isinstance(new, list):
        # A field that is always there is no trouble; one that may be missing is.
        missing = [each for each in old if each not in new]
        if missing and place.endswith("required"):
            yield f"{place}: {', '.join(map(str, missing))} may be missing"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from breaks(before, after, f"{place}[{index}]")
    elif old != new:
        yield f"{place} is another type"


if __name__ == "__main__":
    sys.exit(main())
