"""Results as JSON: exactly their structs, for other programs, with the schema they follow.

Each is an object that begins with `schema`, its name and version. What could not be answered has
`cannot_answer` in place of everything else.
"""

import inspect
import json
import pkgutil
from typing import Any

import msgspec

from gpuprof.collectors.errors import GpuprofError
from gpuprof.reports.json_answers.cannot_answer import CannotAnswer
from gpuprof.reports.json_answers.schemas import JsonSchema

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def render_json(schema: JsonSchema, result: msgspec.Struct) -> bytes:
    """The whole of `result`, indented. Unknown is null; there is no NaN in it."""
    return _indented(answer_fields(schema, result))


def render_refusal(schema: JsonSchema, error: GpuprofError | OSError) -> bytes:
    """What stands in place of an answer that `error` prevents."""
    refused = {"cannot_answer": msgspec.to_builtins(CannotAnswer.because(error))}
    return _indented(_with_schema(schema, refused))


def answer_fields(schema: JsonSchema, result: msgspec.Struct) -> dict[str, Any]:
    """The same as plain values."""
    return _with_schema(schema, msgspec.to_builtins(result))


def published_schema(schema: JsonSchema) -> dict[str, Any]:
    """What docs/schemas has of it: JSON Schema of the answer, or of why there is none."""
    kinds = (pkgutil.resolve_name(f"gpuprof.{schema.struct}"), CannotAnswer)
    (answer, refusal), parts = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    name = answer["$ref"].rpartition("/")[2]
    own = parts.pop(name)
    stated = {
        "type": "object",
        "properties": {"name": {"const": schema.name}, "version": {"const": schema.version}},
        "required": ["name", "version"],
    }
    own["properties"] = {"schema": stated, **own["properties"]}
    own["required"] = ["schema", *own.get("required", ())]
    refused = {
        "type": "object",
        "properties": {"schema": stated, "cannot_answer": refusal},
        "required": ["schema", "cannot_answer"],
        "additionalProperties": False,
    }
    written = {
        "$schema": _DIALECT,
        "title": f"gpuprof {schema.name}, version {schema.version}",
        "anyOf": [own, refused],
        "$defs": parts,
    }
    # msgspec gives tuples, which JSON does not tell from lists.
    read: dict[str, Any] = _without_indents(json.loads(json.dumps(written)))
    return read


def _with_schema(schema: JsonSchema, fields: dict[str, Any]) -> dict[str, Any]:
    return {"schema": {"name": schema.name, "version": schema.version}, **fields}


def _indented(fields: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(fields), indent=1) + b"\n"


def _without_indents(value: Any) -> Any:
    """Descriptions are docstrings, whose indents msgspec kept until 0.23."""
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
