"""Loads a policy from text that was read before the process was sealed.

Knows files before the seal, and text alone after it: the policy and the modules beside it run under
private names, with built-ins of their own, in which `open`, `exec` and the like are refused. Must
not know what a policy is: it hands over the object that bears the name.

Source: DESIGN.md §7 "Purity".
"""

import builtins
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any, Final

import msgspec

from redrive import canonical
from redrive.errors import PluginError, PurityFault, UsageError
from redrive.sandbox.modules import find_neighbours, is_importable
from redrive.sandbox.sealed import Sealed, make_stand_in

_REFUSED_BUILTINS: Final[tuple[tuple[str, str], ...]] = (
    ("file", "open"),
    ("dynamic code", "exec"),
    ("dynamic code", "eval"),
    ("dynamic code", "compile"),
    ("process", "input"),
    ("process", "breakpoint"),
    ("process", "exit"),
    ("process", "quit"),
)


class PolicySource(msgspec.Struct, frozen=True):
    """A policy's text and that of the modules beside it, as they were read.

    Args:
        file: the path as messages show it; also the code's file name.
        text: Python source.
        siblings: module name → (file, text), for each local module that is reached by imports.
        package: the dotted package of an installed policy; empty for a file. Only a file's siblings
            run from their text; those of a package are read for the scan, and imported.
    """

    file: str
    text: str
    siblings: Mapping[str, tuple[str, str]] = {}
    package: str = ""

    def find_sibling(self, name: str) -> str | None:
        """Give the text of a module beside the policy, as `scan_source` asks for it."""
        return self.siblings[name][1] if name in self.siblings else None


def read_policy_file(path: Path) -> PolicySource:
    """Read a policy's file and, over all their imports, the modules beside it.

    Raises:
        UsageError: there is no such file.
        PluginError: a file is no UTF-8 text.
    """
    if not path.is_file():
        raise UsageError("no such file", where=str(path), hint="PATH.py:NAME")
    return _read_policy(path, package="")


def read_policy_module(name: str) -> PolicySource:
    """Read the source of an installed module without running it; its parent packages do run.

    Raises:
        UsageError: there is no such module, or it has no Python source.
    """
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise UsageError(
            f"no module {name}: {error}", hint="PATH.py:NAME or MODULE:NAME"
        ) from error
    if found is None or not found.has_location or not str(found.origin).endswith(".py"):
        raise UsageError(f"no Python source of module {name}", hint="PATH.py:NAME or MODULE:NAME")
    return _read_policy(Path(str(found.origin)), package=found.parent or "")


def _read_policy(path: Path, package: str) -> PolicySource:
    text = _read(path)
    siblings: dict[str, tuple[str, str]] = {}
    waiting = [text]
    while waiting:
        for name in find_neighbours(waiting.pop(), package):
            beside = path.parent / f"{name}.py"
            is_shadowed = not package and is_importable(name, ())
            if name not in siblings and not is_shadowed and beside.is_file():
                siblings[name] = (str(beside), _read(beside))
                waiting.append(siblings[name][1])
    return PolicySource(str(path), text, siblings, package)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PluginError(f"cannot be read: {error}", where=str(path)) from error


def import_declared(names: Sequence[str]) -> None:
    """Import the libraries that policies declare; to be done before the seal.

    Raises:
        PluginError: one is not installed, or fails to load; names it.
    """
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise PluginError(
                f"the declared library {name} cannot be imported: {type(error).__name__}: {error}",
                hint="install it beside redrive, or take it out of the policy's libraries",
            ) from error


def import_policy(
    sealed: Sealed,
    source: PolicySource,
    name: str,
    *,
    libraries: Sequence[str] = (),
    compiled: dict[str, CodeType] | None = None,
) -> Any:
    """Run a policy's module from its text, armed, and hand over the object `name`.

    No file is opened and no bytecode written. Each call makes a new module.

    Args:
        sealed: the sealed process.
        source: as read before the seal.
        name: a module-level name of the policy's file.
        libraries: the third-party modules that the policy declares; others are refused.
        compiled: module name → code, filled here, so that a second call compiles nothing.

    Raises:
        PluginError: the module raised (file:line), is no Python, or has no such name.
        PurityFault: it reached, while it was loaded, for what is refused; carries `where`.
    """
    loader = _Loader(sealed, source, libraries, {} if compiled is None else compiled)
    try:
        module = loader.load(source.file, source.text, loader.private_name)
    except (PurityFault, KeyboardInterrupt):
        raise
    except SyntaxError as error:
        where = f"{error.filename or source.file}:{error.lineno or 0}"
        raise PluginError(f"no Python: {error.msg}", where=where) from error
    except BaseException as error:
        file, line = fault_place(error.__traceback__, source.file, *loader.files)
        message = f"raised while it was loaded: {type(error).__name__}: {error}"
        raise PluginError(message, where=f"{file}:{line}") from error
    try:
        return vars(module)[name]
    except KeyError:
        raise PluginError(f"no {name} in the file", where=source.file) from None


def fault_place(traceback: TracebackType | None, *files: str) -> tuple[str, int]:
    """Find the innermost line of a policy's own files in a traceback.

    Args:
        traceback: of the exception; may be `None`.
        files: the policy's file and those beside it, as their code names them; at least one.

    Returns:
        (file, line); (the first file, 0) if none of them is in the traceback.
    """
    place = (files[0], 0)
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file in files:
            place = (file, traceback.tb_lineno)
        traceback = traceback.tb_next
    return place


class _Loader:
    """Loads one policy: its built-ins, and the modules beside it that it imports."""

    def __init__(
        self,
        sealed: Sealed,
        source: PolicySource,
        libraries: Sequence[str],
        compiled: dict[str, CodeType],
    ) -> None:
        digest = canonical.text_digest(f"{source.file}\n{source.text}")[:16]
        self.private_name = f"_redrive_policy_{digest}"
        self.files = [file for file, _ in source.siblings.values()]
        self._sealed = sealed
        self._source = source
        self._compiled = compiled
        own = (source.package.partition(".")[0],) if source.package else ()
        self._libraries = (*libraries, *own)
        self._loaded: dict[str, ModuleType] = {}
        self._builtins = self._make_builtins()

    def load(self, file: str, text: str, name: str) -> ModuleType:
        """Run one text as a module of that private name; a second call gives the same module."""
        if name in self._loaded:
            return self._loaded[name]
        code = self._compiled.get(name)
        if code is None:
            code = self._compiled[name] = compile(text, file, "exec", dont_inherit=True)
        self._sealed.add_policy_file(file)
        module = ModuleType(name)
        package = self._source.package
        vars(module).update(__file__=file, __package__=package, __builtins__=self._builtins)
        # Dataclasses and structs look their module up by name; modules may import one another.
        self._loaded[name] = sys.modules[name] = module
        was_armed = self._sealed.is_armed
        self._sealed.is_armed = True
        try:
            # The policy's own text: running it is what the user asks for.
            exec(code, vars(module))  # noqa: S102 # nosec B102
        except BaseException:
            del self._loaded[name], sys.modules[name]
            raise
        finally:
            self._sealed.is_armed = was_armed
        return module

    def _make_builtins(self) -> dict[str, Any]:
        own = dict(vars(builtins))
        for kind, name in _REFUSED_BUILTINS:
            original: Callable[..., Any] | None = own.get(name)
            if original is not None:
                what = f"{kind}: builtins.{name}"
                own[name] = make_stand_in(self._sealed, what, original, name=name)
        own["__import__"] = self._import
        return own

    def _import(
        self,
        name: str,
        globals_: Mapping[str, Any] | None = None,
        locals_: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import what a policy may import: pure or declared modules, and those beside it."""
        if level == 0 and not self._source.package and name in self._source.siblings:
            return self.load(*self._source.siblings[name], f"{self.private_name}.{name}")
        if level == 0 and not is_importable(name, self._libraries):
            raise self._sealed.refuse(f"undeclared library: import {name}")
        return builtins.__import__(name, globals_, locals_, fromlist or (), level)
