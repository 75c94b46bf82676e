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
    module = import_code(code)
    workflow = getattr(module, code.name, None)
    if workflow is None:
        raise UsageError(f"no {quote(code.name)} in {code.file or code.module}")
    return workflow, find_tools(workflow, tools_in(module))


def tools_in(module: ModuleType) -> tuple[Tool, ...]:
    """List the tools that a module holds, each once."""
    return tuple({id(v): v for v in vars(module).values() if isinstance(v, Tool)}.values())


def import_code(code: CodePlace) -> ModuleType:
    """Import a workflow's module, and run what it says.

    Raises:
        BaseException: whatever the module raises.
    """
    if not code.file:
        return importlib.import_module(code.module)
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
