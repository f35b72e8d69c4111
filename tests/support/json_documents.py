"""Answers of commands as JSON, which must follow the schemas that are published."""

import json
from typing import Any

from jsonschema import Draft202012Validator

from gpuprof.reports.json_answers.rendering import published_schema
from gpuprof.reports.json_answers.schemas import SCHEMAS


def read_answer(text: str | bytes) -> dict[str, Any]:
    """The answer in `text`, which is one object that begins with its schema and follows it."""
    found: dict[str, Any] = json.loads(text)
    assert next(iter(found)) == "schema"
    (schema,) = (each for each in SCHEMAS if each.name == found["schema"]["name"])
    Draft202012Validator(published_schema(schema)).validate(found)
    return found
