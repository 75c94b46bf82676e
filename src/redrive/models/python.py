"""A model from a Python file that the user names: `python:PATH.py:NAME`.

Knows how to load a file by its path. Must never load a name that stands in a recording.

Source: DESIGN.md §8 "Specs".
"""

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

from redrive import canonical
from redrive.errors import PluginError, UsageError
from redrive.models.adapters import (
    CallableModel,
    call_plugin,
    copy_query,
    from_complete,
    from_step_fn,
)
from redrive.models.options import ModelOptions
from redrive.replay.ports import Model, ModelQuery, ModelReply

_EXPECTED = "expected an object with decide(query), complete(prompt, config) or step(messages)"


class PythonModel:
    """A model object of the user's: each query is a copy, and its exceptions become one line."""

    def __init__(self, spec: str, model: Model) -> None:
        self.spec = spec
        self.reads_context = bool(getattr(model, "reads_context", True))
        self.apis: tuple[str, ...] = tuple(getattr(model, "apis", ()))
        self._model = model

    def decide(self, query: ModelQuery) -> ModelReply:
        """Ask the object.

        Raises:
            PluginError: it raised, or gave no `ModelReply`.
        """
        reply = call_plugin(self.spec, self._model.decide, copy_query(query))
        if not isinstance(reply, ModelReply):
            raise PluginError(
                f"decide(query) gave {type(reply).__name__}, expected a ModelReply", where=self.spec
            )
        return reply

    def close(self) -> None:
        """Let the object release what it holds."""
        close = getattr(self._model, "close", None)
        if close is not None:
            call_plugin(self.spec, close)


def open_model(argument: str, options: ModelOptions) -> PythonModel | CallableModel:
    """Open `python:PATH.py:NAME`.

    Raises:
        UsageError: the spec is malformed or there is no such file.
        PluginError: the file cannot be loaded (file:line), or NAME is absent or of no known shape.
    """
    spec = f"python:{argument}"
    path, _, name = argument.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise UsageError("no PATH.py:NAME in the model spec", hint="python:PATH.py:NAME")
    target = getattr(_load(Path(path), spec), name, None)
    if target is None:
        raise PluginError(f"no {name} in the file", where=path, hint=_EXPECTED)
    if isinstance(target, CallableModel) or hasattr(target, "decide"):
        return PythonModel(spec, target)
    match _n_parameters(target):
        case 1:
            return from_step_fn(target, spec=spec, options=options)
        case 2:
            return from_complete(target, spec=spec, options=options)
        case _:
            raise PluginError(f"{name} is no model", where=path, hint=_EXPECTED)


def _load(path: Path, spec: str) -> ModuleType:
    if not path.is_file():
        raise UsageError("no such file", where=str(path), hint="python:PATH.py:NAME")
    name = f"redrive_plugin_{canonical.text_digest(str(path.resolve()))[:16]}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise PluginError("a file that Python cannot load", where=str(path))
    module = importlib.util.module_from_spec(found)
    # Dataclasses and structs of the file look their own module up by name.
    sys.modules[name] = module
    call_plugin(spec, found.loader.exec_module, module)
    return module


def _n_parameters(target: object) -> int:
    """Count the positional parameters without a default; 0 for what cannot be called."""
    if not callable(target):
        return 0
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters)
