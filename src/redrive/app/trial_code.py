"""Imports a workflow's own code, inside its sandbox.

Knows files, modules and what `redrive.trial` declares. The host never comes here: whoever imports
this way runs what the file says.
"""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

from redrive.app.trial_messages import CodePlace
from redrive.errors import UsageError, quote
from redrive.trial_tools import Tool
from redrive.trial_workflow import find_tools


def load_code(code: CodePlace) -> tuple[Any, dict[str, Tool]]:
    """Import a workflow's module; give the workflow, and every tool that it names or holds, by id.

    Raises:
        UsageError: it holds nothing of that name.
        BaseException: whatever the module raises.
    """
    module = _import_file(code) if code.file else importlib.import_module(code.module)
    workflow = getattr(module, code.name, None)
    if workflow is None:
        raise UsageError(f"no {quote(code.name)} in {code.file or code.module}")
    beside = {id(value): value for value in vars(module).values() if isinstance(value, Tool)}
    return workflow, find_tools(workflow, beside.values())


def _import_file(code: CodePlace) -> ModuleType:
    name = code.file.rpartition("/")[2].removesuffix(".py")
    if code.folder not in sys.path:
        sys.path.insert(0, code.folder)
    spec = importlib.util.spec_from_file_location(name, code.file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{code.file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
