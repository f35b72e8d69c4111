"""JSON schemas of structs, as they are published in docs/."""

import inspect
import json
from typing import Any

import msgspec


def schema_of(kind: type[msgspec.Struct]) -> Any:
    """The schema of `kind`. Descriptions are docstrings, whose indents msgspec kept until 0.23."""
    return _without_indents(json.loads(json.dumps(msgspec.json.schema(kind))))


def _without_indents(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_indents(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: inspect.cleandoc(each)
        if name == "description" and isinstance(each, str)
        else _without_indents(each)
        for name, each in value.items()
    }
