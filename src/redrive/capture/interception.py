"""Interception: reads of clock and dice in code that knows no session.

Knows which functions of `time`, `datetime`, `random`, `uuid`, `secrets` and `os` are reads. Must
not know who records, nor what a stand-in is made of (`standins`).

Only look-ups in the agent's own files count, whoever then calls: `time.time()`, `from time import
time`, `from datetime import datetime`, `rng = random.Random()`, `Field(default_factory=uuid4)`.
Libraries, asyncio and logging get the real thing. What is not caught:

* a function that was taken before the interception began and lies in a default argument, a
  closure, a class or an instance (a name of a module is caught; so are `datetime` and
  `random.Random`, wherever they lie);
* what a library reads for itself and hands to the agent: `pendulum.now()`, `loop.time()`,
  `tempfile.mkdtemp()`, numpy's dice, a database's `now()`;
* extensions in C that ask the operating system; `vars(time)["time"]`; `os.times()`; the iteration
  order of a set of texts (`PYTHONHASHSEED`), `id()`;
* a subclass of `random.Random` with draws of its own making, and a forked child, which reads
  unrecorded.

Source: DESIGN.md §4 "clock and PRNG".
"""

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import date, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from types import BuiltinMethodType, MethodType, ModuleType
from typing import Any, Final

from redrive.capture import clock, dice
from redrive.capture.agent_code import AgentCode, find_roots, is_machinery
from redrive.capture.c_types import replace_in_class
from redrive.capture.ports import Backend
from redrive.capture.standins import (
    Answer,
    Method,
    StandIn,
    Watch,
    watch_class,
    watch_module,
)
from redrive.errors import UsageError


class ReadSource(StrEnum):
    """A module whose reads can be intercepted; of `os`, the random bytes alone."""

    TIME = "time"
    DATETIME = "datetime"
    RANDOM = "random"
    UUID = "uuid"
    SECRETS = "secrets"
    OS = "os"


ALL_SOURCES: Final = tuple(ReadSource)
CLASS_SOURCES: Final[Mapping[str, frozenset[ReadSource]]] = {
    "clock": frozenset({ReadSource.TIME, ReadSource.DATETIME}),
    "prng": frozenset({ReadSource.RANDOM, ReadSource.UUID, ReadSource.SECRETS, ReadSource.OS}),
}
"""By input class: the sources that must all be intercepted for it to count as captured."""


def captured_by(names: Iterable[str]) -> dict[str, str]:
    """Say which input classes are captured where these sources are intercepted.

    Returns:
        `clock` and `prng`, each `captured` or `not_captured`, as `SessionStarted.captures` has it.
    """
    given = set(names)
    return {
        name: "captured" if sources <= given else "not_captured"
        for name, sources in CLASS_SOURCES.items()
    }


class Interception:
    """What is intercepted.

    Attributes:
        names: the sources that are; of those asked for, an interpreter may not let us reach
            `datetime`.
        roots: the folders whose files count as the agent's; empty where the caller decides.
    """

    def __init__(self, watch: Watch, roots: tuple[Path, ...]) -> None:
        self.names: frozenset[ReadSource] = frozenset()
        self.roots = roots
        self._watch = watch
        self._undo = ExitStack()
        self._by_id: dict[int, StandIn] = {}
        self._methods: dict[str, Method] = {}
        self._class_methods: dict[str, Method] = {}

    def start(self, sources: Iterable[ReadSource]) -> None:
        """Put every stand-in in its place; nothing stays where this raises."""
        with ExitStack() as undo:
            self._undo = undo
            undo.callback(self._restore_names)
            for source in sources:
                if _STARTERS[source](self):
                    self.names |= {source}
            self._replace_names()
            self._undo = undo.pop_all()

    def stop(self) -> None:
        """Put everything back; stand-ins that lie elsewhere call the real thing. Idempotent."""
        self._watch.is_active = False
        self._undo.close()

    def _watch_functions(self, source: ReadSource, answers: Mapping[str, Answer]) -> bool:
        module = importlib.import_module(source)
        stand_ins, restore = watch_module(self._watch, module, answers)
        self._undo.callback(restore)
        self._by_id.update(stand_ins)
        return True

    def _start_time(self) -> bool:
        backend = self._watch.backend
        answers: dict[str, Answer] = {
            name: partial(_answer_time, partial(clock.read_time, backend, name))
            for name in clock.TIME_READS
        }
        answers["sleep"] = partial(_answer_time, partial(clock.sleep, backend))
        return self._watch_functions(ReadSource.TIME, answers)

    def _start_functions(self, source: ReadSource) -> bool:
        return self._watch_functions(source, self._draws(source))

    def _start_random(self) -> bool:
        answers = self._draws(ReadSource.RANDOM)
        for cls in (SystemRandom, Random):
            # Random inherits some from a class in C, where they cannot be replaced.
            own = {
                name: answer
                for name, answer in answers.items()
                if name in vars(cls) or (cls is Random and hasattr(cls, name))
            }
            self._methods, restore = watch_class(self._watch, cls, own)
            self._undo.callback(restore)
        return self._watch_functions(ReadSource.RANDOM, answers)

    def _draws(self, source: ReadSource) -> dict[str, Answer]:
        dealer = dice.Dealer(self._watch.backend, source)
        return {name: partial(dealer.draw, name) for name in dice.names_in(source)}

    def _start_datetime(self) -> bool:
        backend = self._watch.backend
        places: tuple[tuple[type, str, Callable[..., Any]], ...] = (
            (datetime, "now", partial(_answer_now, backend)),
            (datetime, "utcnow", partial(_answer_today, backend, "utcnow")),
            (date, "today", partial(_answer_today, backend, "today")),
        )
        try:
            for cls, name, answer in places:
                method = Method(self._watch, name, cls.__dict__[name], answer, is_on_class=True)
                before = replace_in_class(cls, name, method)
                self._undo.callback(replace_in_class, cls, name, before)
                self._class_methods[name] = method
        except TypeError:
            return False
        return True

    def _replace_names(self) -> None:
        """Replace what modules of the agent took before: functions, and methods bound to dice."""
        for names in self._agent_modules():
            for name, value in list(names.items()):
                stand_in = self._by_id.get(id(value)) or self._stand_in_for_bound(value)
                if stand_in is not None:
                    names[name] = stand_in

    def _stand_in_for_bound(self, value: object) -> StandIn | None:
        if not isinstance(value, BuiltinMethodType | MethodType):
            return None
        owner, name = value.__self__, value.__name__
        if isinstance(owner, type) and issubclass(owner, date):
            methods = self._class_methods
        elif isinstance(owner, Random):
            methods = self._methods
        else:
            return None
        return methods[name].stand_in_for(value) if name in methods else None

    def _restore_names(self) -> None:
        for names in self._agent_modules():
            for name, value in list(names.items()):
                if isinstance(value, StandIn) and value.belongs_to(self._watch):
                    names[name] = value.find_real()

    def _agent_modules(self) -> Iterator[dict[str, Any]]:
        for module in list(sys.modules.values()):
            if issubclass(type(module), ModuleType) and self._watch.is_agent_module(vars(module)):
                yield vars(module)


_STARTERS: Final[Mapping[ReadSource, Callable[[Interception], bool]]] = {
    ReadSource.TIME: Interception._start_time,
    ReadSource.DATETIME: Interception._start_datetime,
    ReadSource.RANDOM: Interception._start_random,
    ReadSource.UUID: partial(Interception._start_functions, source=ReadSource.UUID),
    ReadSource.SECRETS: partial(Interception._start_functions, source=ReadSource.SECRETS),
    ReadSource.OS: partial(Interception._start_functions, source=ReadSource.OS),
}


def _answer_time(
    read: Callable[[Callable[..., Any], tuple[Any, ...]], Any],
    real: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    # No function of `time` takes keywords: with one, it says so itself.
    return real(*args, **kwargs) if kwargs else read(real, args)


def _answer_now(backend: Backend, real: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) + len(kwargs) > 1 or kwargs.keys() - {"tz"}:
        return real(*args, **kwargs)
    tz = args[0] if args else kwargs.get("tz")
    return clock.read_now(backend, real.__self__, real, tz)


def _answer_today(
    backend: Backend, name: str, real: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if args or kwargs:
        return real(*args, **kwargs)
    return clock.read_today(backend, real.__self__, name, real)


_ONE_AT_A_TIME: Final = threading.Lock()
_running: Final[list[Interception]] = []


def intercept(
    backend: Backend,
    names: Iterable[str] = ALL_SOURCES,
    *,
    roots: Iterable[Path] | None = None,
    is_agent_code: Callable[[str], bool] | None = None,
) -> AbstractContextManager[Interception]:
    """Intercept reads of clock and dice in the agent's own code, for the length of a `with` block.

    Args:
        backend: who records or serves the reads; it may be called from any thread.
        names: sources, see `ReadSource`.
        roots: folders of the agent's own files. Default: the projects that the main script and the
            calling file belong to.
        is_agent_code: decides by a file's name instead, whatever `roots` says; files of redrive and
            of the standard library are never the agent's.

    Returns:
        A context manager that gives the `Interception`; at its end everything is put back.

    Raises:
        UsageError: an unknown source; on entering, an interception is running in this process.

    Cost: while it runs, looking up `time.time` and the like takes a fraction of a microsecond more
    in code that is not the agent's, and the call itself nothing.
    """
    names = tuple(names)
    unknown = sorted(set(names) - set(ALL_SOURCES))
    if unknown:
        raise UsageError(
            f"reads of {', '.join(unknown)} cannot be intercepted",
            hint=f"name some of {', '.join(ALL_SOURCES)}",
        )
    if is_agent_code is None:
        code = AgentCode(find_roots(sys._getframe(1)) if roots is None else roots)
        return _intercepting(Watch(backend, code), names, code.roots)
    chosen = is_agent_code
    return _intercepting(
        Watch(backend, lambda name: not is_machinery(name) and chosen(name)), names, ()
    )


@contextmanager
def _intercepting(
    watch: Watch, names: Iterable[str], roots: tuple[Path, ...]
) -> Iterator[Interception]:
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        raise UsageError(
            "reads are being intercepted already",
            hint="one session at a time can intercept; use session.clock and session.random",
        )
    interception = Interception(watch, roots)
    try:
        interception.start(source for source in ReadSource if source in names)
        _running.append(interception)
        yield interception
    finally:
        interception.stop()
        _running.clear()
        _ONE_AT_A_TIME.release()


def _leave_in_child() -> None:
    """End in a forked child: the session is its parent's."""
    for interception in _running:
        interception.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_in_child)
