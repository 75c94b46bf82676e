"""JSON Schema by the library `jsonschema`, without ever fetching a schema.

Knows schemas as values. A `$ref` that leaves the document is refused when the schema is opened, and
the registry that is handed to the library retrieves nothing either.
"""

from collections.abc import Iterator
from typing import Any

from redrive.errors import UsageError

INSTALL_HINT = "pip install 'redrive[trial]'"
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def find_remote(schema: Any) -> str | None:
    """Find the first reference that does not stay in the document."""
    for key, value in _members(schema):
        if key in _REFERENCES and isinstance(value, str) and not value.startswith("#"):
            return value
    return None


def _members(root: Any) -> Iterator[tuple[str, Any]]:
    stack = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield from value.items()
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


def check_schema(schema: Any) -> str | None:
    """Say what is wrong with a schema; `None` if nothing is.

    Raises:
        UsageError: the library is not installed.
    """
    remote = find_remote(schema)
    if remote is not None:
        return f"$ref {remote!r} leaves the document; nothing is ever fetched"
    if not isinstance(schema, dict | bool):
        return "a schema is an object or a boolean"
    library = _library()
    chosen = library.validators.validator_for(schema, default=library.Draft202012Validator)
    try:
        chosen.check_schema(schema)
        return _find_unresolved(schema)
    except (library.SchemaError, RecursionError) as found:
        return " ".join(str(found).split("\n", 1)[0].split())[:300]


def _find_unresolved(schema: Any) -> str | None:
    """Resolve each reference within the document once."""
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry().with_resource(resource.id() or "", resource).resolver_with_root(resource)
    for key, value in _members(schema):
        if key == "$ref" and isinstance(value, str):
            try:
                resolver.lookup(value)
            except Unresolvable as error:
                return f"$ref {value!r} names nothing: {type(error).__name__}"
    return None


def make_validator(schema: Any) -> Any:
    """Make the validator of a checked schema; it resolves what lies in the document alone."""
    from referencing import Registry

    library = _library()
    chosen = library.validators.validator_for(schema, default=library.Draft202012Validator)
    return chosen(schema, registry=Registry())


def find_fault(validator: Any, value: Any) -> str | None:
    """Find the first thing in which a value is not as its schema says: where, and what."""
    for error in validator.iter_errors(value):
        place = "".join(f"/{part}" for part in error.absolute_path) or "the output"
        return f"{place}: {error.message[:200]}"
    return None


def _library() -> Any:
    try:
        import jsonschema
    except ImportError as error:
        raise UsageError(
            "a grader of the kind json_schema needs jsonschema, which is not installed",
            hint=INSTALL_HINT,
        ) from error
    return jsonschema
