"""Imports a workflow's own code, inside its sandbox, for a run.

Knows what `redrive.trial` declares. The host never comes here: whoever imports this way runs what
the file says.
"""

from typing import Any

from redrive.app.trial_describing import WorkflowPlace, import_code
from redrive.errors import UsageError, quote
from redrive.trial_tools import Tool
from redrive.trial_workflow import find_tools


def load_code(place: WorkflowPlace) -> tuple[Any, dict[str, Tool]]:
    """Import a workflow's module; give the workflow, and every tool that it names or holds, by id.

    Raises:
        UsageError: it holds nothing of that name.
        BaseException: whatever the module raises.
    """
    module = import_code(place)
    workflow = vars(module).get(place.name)
    if workflow is None:
        raise UsageError(f"no {quote(place.name)} in {place.file or place.module}")
    beside = {id(value): value for value in vars(module).values() if isinstance(value, Tool)}
    return workflow, find_tools(workflow, beside.values())
