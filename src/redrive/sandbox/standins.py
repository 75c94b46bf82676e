"""Raising stand-ins for clock, dice, files, network, environment and processes.

The second net of policy purity. `seal` changes the process it runs in for good, so it is called in
a worker process alone. A stand-in raises `PurityFault` *and* writes the attempt down, so that a
policy that swallows the fault is found all the same. The audit hook catches, while policy code
runs, what replacing names cannot: `posix.open`, `io.FileIO`, `_socket.socket`, `ctypes`.

This is a net for mistakes, not a prison for an enemy: `LET_THROUGH` names what passes.

Source: DESIGN.md §7 "Purity".
"""

import importlib
import importlib.machinery
import io
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final

from redrive.sandbox.clocks import replace_datetime, without_argument
from redrive.sandbox.refused import (
    ENVIRON_METHODS,
    EVENT_FAMILIES,
    EVENTS,
    OS_KEPT,
    OS_KINDS,
    OS_WRAPPERS,
    REFUSED_IMPORTS,
    REPLACED,
    REPLACED_IF_LOADED,
    REPLACED_WHOLE,
)
from redrive.sandbox.sealed import Call, Sealed, is_importing, make_stand_in

_MODULE_SUFFIXES: Final = (".py", ".pyc", *importlib.machinery.EXTENSION_SUFFIXES)


def seal() -> Sealed:
    """Put the stand-ins in place, for the rest of the process.

    Declared libraries are imported before; what the worker itself needs (`os.read`, an open
    database) it takes hold of before, too.
    """
    sealed = Sealed()
    add_hook = sys.addaudithook
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    for kind, owner, names in REPLACED:
        importlib.import_module(owner.partition(".")[0])
        _replace(sealed, kind, owner, names)
    for kind, owner, names in REPLACED_IF_LOADED:
        _replace(sealed, kind, owner, names)
    for kind, owner in REPLACED_WHOLE:
        module = sys.modules.get(owner)
        if module is not None:
            # Classes stay, for `isinstance`; what they draw without a seed comes from `random`.
            found = {name: value for name, value in vars(module).items() if callable(value)}
            drawing = [n for n, v in found.items() if not isinstance(v, type) and n[0] != "_"]
            _replace(sealed, kind, owner, drawing)
    _replace_if_pure(sealed)
    _replace_os(sealed)
    _replace_environment(sealed)
    replace_datetime(sealed)
    _replace_streams(sealed)
    add_hook(_make_hook(sealed))
    return sealed


def _find_owner(dotted: str) -> Any:
    """Find a loaded module, or a class in one; `None` if the module is not loaded."""
    if dotted in sys.modules:
        return sys.modules[dotted]
    module, _, name = dotted.rpartition(".")
    return getattr(sys.modules.get(module), name, None)


def _replace(sealed: Sealed, kind: str, owner: str, names: Sequence[str]) -> None:
    target = _find_owner(owner)
    for name in names if target is not None else ():
        original = getattr(target, name, None)
        if original is not None:
            what = f"{kind}: {owner}" if name == "__init__" else f"{kind}: {owner}.{name}"
            setattr(target, name, make_stand_in(sealed, what, original))


def _replace_if_pure(sealed: Sealed) -> None:
    """Refuse the calls that take their answer from the world, and keep those with arguments."""
    for owner, name, kind, place in (
        ("time", "gmtime", "clock", 0),
        ("time", "localtime", "clock", 0),
        ("time", "ctime", "clock", 0),
        ("time", "asctime", "clock", 0),
        ("time", "strftime", "clock", 1),
        ("random.Random", "seed", "randomness", 1),
    ):
        target = _find_owner(owner)
        original = getattr(target, name)
        refusing = make_stand_in(sealed, f"{kind}: {owner}.{name} without argument", original)
        setattr(target, name, without_argument(original, refusing, place))
    for module in ("locale", "_locale"):
        target = importlib.import_module(module)
        refusing = make_stand_in(sealed, f"environment: {module}.setlocale", target.setlocale)

        def ask_locale(
            category: int,
            locale: object = None,
            *,
            original: Call = target.setlocale,
            refusing: Call = refusing,
        ) -> Any:
            return original(category) if locale is None else refusing(category, locale)

        target.setlocale = ask_locale  # type: ignore[attr-defined]


def _os_kind(name: str) -> str:
    return next((kind for kind, names in OS_KINDS if name in names), "file")


def _replace_os(sealed: Sealed) -> None:
    system = importlib.import_module(sys.modules["os"].name)
    shell = sys.modules["os"]
    for name, original in list(vars(system).items()):
        if isinstance(original, type) or not callable(original) or name in OS_KEPT:
            continue
        stand_in = make_stand_in(sealed, f"{_os_kind(name)}: os.{name}", original)
        if getattr(shell, name, None) is original:
            setattr(shell, name, stand_in)
        setattr(system, name, stand_in)
    for name in OS_WRAPPERS:
        _replace(sealed, _os_kind(name), "os", (name,))


def _replace_environment(sealed: Sealed) -> None:
    """Refuse reading `os.environ`, also through a name that was bound to it before."""
    shell: Any = sys.modules["os"]
    environment = type(shell.environ)
    what = "environment: os.environ"
    for name in ENVIRON_METHODS:
        setattr(environment, name, make_stand_in(sealed, what, getattr(environment, name)))
    system: Any = sys.modules[shell.name]
    methods = {
        name: make_stand_in(sealed, what, getattr(dict, name))
        for name in ("__getitem__", "__iter__", "__len__", "__contains__", "get", "copy", "items")
    }
    system.environ = type("environ", (dict,), methods)(system.environ)


class _Nowhere(io.TextIOBase):
    """A stream that counts what is written, and refuses to be read."""

    def __init__(self, sealed: Sealed, replaced: object) -> None:
        self._sealed = sealed
        # Kept alive: closing it would close the worker's own descriptor.
        self._replaced = replaced

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        self._sealed.printed_chars += len(text)
        return len(text)

    def read(self, _size: int | None = -1, /) -> str:
        raise self._sealed.refuse("process: sys.stdin")

    def readline(self, _size: int = -1, /) -> str:  # type: ignore[override]
        raise self._sealed.refuse("process: sys.stdin")


def _replace_streams(sealed: Sealed) -> None:
    for name in ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__"):
        replaced = getattr(sys, name)
        if replaced is not None and not name.endswith("stdin"):
            replaced.flush()
        setattr(sys, name, _Nowhere(sealed, replaced))


def _make_hook(sealed: Sealed) -> Callable[[str, tuple[Any, ...]], None]:
    """Make the audit hook; it costs about 0.1 µs per event while it is not armed."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if not sealed.is_armed:
            return
        kind = EVENTS.get(event) or EVENT_FAMILIES.get(event.partition(".")[0])
        if kind is not None:
            _judge_effect(sealed, kind, event, args, sys._getframe(1))
        elif event == "import":
            if args[0] in REFUSED_IMPORTS:
                raise sealed.refuse(f"foreign code: import {args[0]}")
        elif event in ("exec", "compile") and sealed.is_policy_frame(sys._getframe(1)):
            raise sealed.refuse(f"dynamic code: {event}")

    return hook


def _judge_effect(
    sealed: Sealed, kind: str, event: str, args: tuple[Any, ...], caller: FrameType
) -> None:
    if sealed.spares(caller) and (event != "open" or _is_module_file(caller, args)):
        return
    about = f" {args[0]!r:.100}" if args and isinstance(args[0], str | bytes) else ""
    raise sealed.refuse(f"{kind}: {event}{about}")


def _is_module_file(caller: FrameType, args: tuple[Any, ...]) -> bool:
    """Tell whether an open that is spared reads a module; a measuring tool opens what it likes."""
    if not is_importing(caller):
        return True
    return isinstance(args[0], str) and args[0].endswith(_MODULE_SUFFIXES)
