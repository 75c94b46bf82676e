"""Checks documents against the JSON Schemas that ship with redrive."""

import json
from importlib.resources import files
from typing import Any

import jsonschema


def strict(schema: Any) -> Any:
    """Forbid what a schema does not name, so that a new key needs its place in the schema."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    if closed.get("type") == "object" and isinstance(closed.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


def check(document: Any, name: str) -> Any:
    """Hold a document to the schema of its verb; give the document."""
    text = files("redrive.reports").joinpath("schemas", f"{name}.json").read_text()
    schema = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(strict(schema)).validate(document)
    assert document["schema"] == f"redrive.{name}"
    return document
