"""The grader `json_schema`: the output, or a part of it, meets a JSON Schema.

The check runs in a process that can be killed: a schema may hold patterns, and an output may be
made for them.
"""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from redrive import canonical
from redrive.graders.checked import mark_checked
from redrive.graders.options import (
    check_pointer,
    check_timeout,
    find_file,
    read_options,
    wrong,
)
from redrive.graders.outputs import read_output
from redrive.graders.schemas import check_schema
from redrive.grading import GradeContext, GradeGroup, GraderSetup, GroupGrade


class SchemaOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options.

    Attributes:
        file: of the schema, from the plan's folder.
        schema: the schema itself, in place of a file.
        at: JSON pointer into the output.
        timeout_s: processor time for one output.
    """

    file: str = ""
    schema: Any | UnsetType = UNSET
    at: str = ""
    timeout_s: float = 5.0


class SchemaGrader:
    """Checks outputs against one schema."""

    def __init__(self, options: SchemaOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema

    def grade(self, group: GradeGroup, context: GradeContext) -> GroupGrade:  # noqa: ARG002 - the protocol's
        """Give 1 to outputs that meet the schema, 0 to the others, with the first fault."""
        options = self._options
        return mark_checked(
            group,
            "json_schema",
            self._schema,
            lambda episode: read_output(episode, options.at),
            options.timeout_s,
        )


def open_grader(setup: GraderSetup) -> SchemaGrader:
    """Open `json_schema`.

    Raises:
        UsageError: an option is wrong, there is no such file, the schema is none, or it refers to
            what lies elsewhere.
    """
    options = read_options(setup.spec, SchemaOptions)
    check_pointer(setup.spec, options.at)
    check_timeout(setup.spec, options.timeout_s)
    if bool(options.file) is not isinstance(options.schema, UnsetType):
        raise wrong(setup.spec, "expected exactly one of file and schema")
    schema = _read(setup, options.file) if options.file else options.schema
    fault = check_schema(schema)
    if fault is not None:
        raise wrong(setup.spec, f"the schema is none: {fault}")
    return SchemaGrader(options, schema)


def _read(setup: GraderSetup, name: str) -> Any:
    try:
        return canonical.decode_value(find_file(setup, name).read_bytes())
    except (ValueError, OSError) as error:
        raise wrong(setup.spec, f"the schema's file is no JSON: {error}") from error
