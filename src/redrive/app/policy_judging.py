"""Runs one policy on one event at a time, and turns whatever goes wrong into a fault.

Knows a live policy, the purity nets, and what a fault is. Must not know sessions or order. A
policy is code of a stranger: it may raise, lie, or change what it was given; it never stops the
others.

Source: DESIGN.md §7 "Purity".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from types import MappingProxyType, TracebackType
from typing import Any, Protocol

import msgspec
from msgspec import Raw, UnsetType
from msgspec.structs import replace

from redrive import canonical
from redrive.compare.policy_report import PolicyFault
from redrive.errors import PluginError, PurityFault
from redrive.record.event import Kind
from redrive.replay.persistent import Log, Table
from redrive.replay.policy import (
    ACTIONS,
    MAX_REASON_CHARS,
    Action,
    Lane,
    Policy,
    PolicySpec,
    Reducer,
)
from redrive.replay.policy_event import PolicyEvent
from redrive.replay.policy_state import InferenceMissing, State
from redrive.sandbox.sealed import Violation

_PLAIN: frozenset[type] = frozenset({str, int, float, bytes, bool, type(None)})
_ATOMS = (*_PLAIN, Enum, Raw, UnsetType)
_IMMUTABLE_MODULES = ("decimal", "fractions", "datetime", "pathlib", "re", "uuid")
_MAX_CHECKED = 1000
_KEY_CHARS = 200
_LIMITS = (
    (MemoryError, "limits", "ran out of memory"),
    (RecursionError, "limits", "recursed too deeply"),
)


class Nets(Protocol):
    """The stand-ins of a sealed process; see `redrive.sandbox.standins`."""

    is_armed: bool

    @property
    def violations(self) -> Sequence[Violation]:
        """What was caught since they were taken, oldest first."""
        ...

    def take_violations(self) -> Sequence[Violation]:
        """Give what was caught since the last call, and forget it."""
        ...


class NoNets:
    """No stand-ins: for policies whose code is redrive's own, where nothing can be sealed."""

    is_armed = False
    violations: Sequence[Violation] = ()

    def take_violations(self) -> Sequence[Violation]:
        """Give nothing: nothing is watched."""
        return ()


class LivePolicy:
    """A loaded policy with what a replay needs of it.

    Args:
        load: runs its module anew, and gives what makes instances.
        spec: what it declares.
        place: gives file:line of a traceback in the policy's own code.
        nets: the stand-ins.
    """

    def __init__(
        self,
        load: Callable[[], Callable[[], Policy]],
        spec: PolicySpec,
        place: Callable[[TracebackType | None], str],
        nets: Nets,
    ) -> None:
        self.spec = spec
        self.is_gate = spec.lane is Lane.GATE
        self.reads_standard = spec.uses_standard_state or bool(spec.needs)
        self._load = load
        self._place = place
        self._nets = nets
        self._make = load()
        self._twin: Callable[[], Policy] | None = None
        self._take(self._make())
        for name, reducer in self.reducers:
            wrong = find_mutable(reducer.initial)
            if wrong is not None:
                raise PluginError(
                    f"policy {spec.name}: reducer {name!r} begins with a {wrong}",
                    hint="values of a state must be immutable: tuple, frozenset, Log, Table",
                )

    def _take(self, policy: Policy) -> None:
        self._policy = policy
        self.reducers = tuple(policy.reducers.items())
        self.initial = MappingProxyType({name: r.initial for name, r in self.reducers})
        # Per kind the reducers that read it; custom events are told apart by name.
        self._readers: dict[Kind, tuple[tuple[str, Callable[[Any, PolicyEvent], Any]], ...]] = {
            kind: tuple([(name, r.fold) for name, r in self.reducers if kind.value in r.on])
            for kind in Kind
            if kind is not Kind.CUSTOM
        }
        words = {word.partition(":")[0] for _, reducer in self.reducers for word in reducer.on}
        customs = {Kind.CUSTOM} if Kind.CUSTOM.value in words else frozenset[Kind]()
        self.folded = (
            frozenset(kind for kind, readers in self._readers.items() if readers) | customs
        )

    def renew(self) -> PolicyFault | None:
        """Begin a session with the module run anew, so that nothing is carried over from another.

        What a policy kept in a class, a closure or a default would else depend on which sessions
        its worker was given before.
        """
        make = self._guard(self._load)
        made = make if isinstance(make, PolicyFault) else self._guard(make)
        if isinstance(made, PolicyFault):
            return made
        self._make, self._twin = make, None
        self._take(made)
        return None

    def reads(self, kind: Kind) -> bool:
        """Say whether events of this kind are judged, or may be read by a reducer."""
        return kind in self.spec.kinds or kind in self.folded

    def fold(self, own: Mapping[str, Any], event: PolicyEvent) -> Mapping[str, Any] | PolicyFault:
        """Give the values of the policy's own reducers after an event."""
        readers = self._readers.get(event.kind)
        if readers is None:
            readers = tuple([(n, r.fold) for n, r in self.reducers if _reads(r, event)])
        changed: dict[str, Any] = {}
        for name, fold in readers:
            value = self._guard(fold, own[name], event)
            if value is own[name]:
                continue
            if isinstance(value, PolicyFault):
                return value
            wrong = find_mutable(value)
            if wrong is not None:
                what = f"reducer {name!r} gave a {wrong}: values of a state must be immutable"
                return PolicyFault("error", what, self._place_of(fold))
            changed[name] = value
        return MappingProxyType({**own, **changed}) if changed else own

    def evaluate(self, event: PolicyEvent, state: State) -> Action | PolicyFault | str | None:
        """Judge an event once.

        Returns:
            The action, `None`, a fault, or the name of the inference that is missing.
        """
        nets = self._nets
        nets.is_armed = True
        try:  # as `_guard` does, without the call
            found: Any = self._policy.evaluate(event, state)
        except BaseException as error:  # noqa: BLE001 - whatever a stranger's code raises
            found = self._caught(error)
        finally:
            nets.is_armed = False
        if nets.violations:
            found = self._violated(found)
        if found is None or isinstance(found, PolicyFault | InferenceMissing):
            return found.name if isinstance(found, InferenceMissing) else found
        wrong = _find_wrong(found, self.spec.lane)
        if wrong is not None:
            return PolicyFault("error", wrong, self._place_of(self._policy.evaluate))
        return _shorten(found)

    def dedup_key(
        self, action: Action, event: PolicyEvent, state: State
    ) -> str | PolicyFault | None:
        """Give the key under which a match counts for a cooldown."""
        if action.dedup_key is not None:
            return _short_key(action.dedup_key)
        declared = self._policy.dedup_key
        if not callable(declared):
            return None if declared is None else _short_key(str(declared))
        key = self._guard(lambda: _text_or_none(declared(event, state)))
        return _short_key(key) if isinstance(key, str) else key

    def recheck(self, event: PolicyEvent, state: State, first: object) -> PolicyFault | None:
        """Judge an event twice more: the answer must be the same.

        Once by another instance, which finds what counts up; once by a twin that saw nothing (an
        instance of a module run anew for the session), which finds what was kept from other events.
        """
        kept = self._policy
        for make in (self._make, self._make_twin):
            made = self._guard(make)
            if isinstance(made, PolicyFault):
                return made
            self._policy = made
            try:
                second = self.evaluate(event, state)
            finally:
                self._policy = kept
            if isinstance(second, PolicyFault):
                return second
            if second != first:
                what = f"answers differently when asked again: {_word(first)}, then {_word(second)}"
                return PolicyFault("recheck", what, self._place_of(kept.evaluate))
        return None

    def _make_twin(self) -> Policy:
        if self._twin is None:
            self._twin = self._load()
        return self._twin()

    def mutation(self, what: str) -> PolicyFault:
        """Say that the policy changed what it was given."""
        return PolicyFault("recheck", f"changes the {what}", self._place_of(self._policy.evaluate))

    def write(self, own: Mapping[str, Any], form: Callable[[Any], Any]) -> Any | PolicyFault:
        """Write the reducers' values in a form; how a value is written may be code of the policy.

        Returns:
            (name, written value) of each, by name; or a fault.
        """
        return self._guard(lambda: [(name, form(value)) for name, value in sorted(own.items())])

    def _guard(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Run code of the policy behind the nets."""
        nets = self._nets
        nets.is_armed = True
        try:
            found = call(*arguments)
        except BaseException as error:  # noqa: BLE001 - whatever a stranger's code raises
            found = self._caught(error)
        finally:
            nets.is_armed = False
        return self._violated(found) if nets.violations else found

    def _violated(self, found: Any) -> Any:
        """Give the fault of code that the nets caught, whatever it went on to answer."""
        first = self._nets.take_violations()[0]
        if isinstance(found, PolicyFault) and found.net == "stand-in":
            return found
        what = f"{first.what}, and swallowed the refusal"
        return PolicyFault("stand-in", what, f"{first.file}:{first.line}" if first.file else "")

    def _caught(self, error: BaseException) -> PolicyFault | InferenceMissing:
        if isinstance(error, InferenceMissing):
            return error
        place = self._place(error.__traceback__)
        for kind, net, what in _LIMITS:
            if isinstance(error, kind):
                return PolicyFault(net, what, place)
        if isinstance(error, PurityFault):
            return PolicyFault("stand-in", error.what, error.where or place)
        return PolicyFault("error", _told(error), place)

    def _place_of(self, function: Any) -> str:
        code = getattr(function, "__code__", None)
        if code is None:
            return ""
        return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"


def _find_wrong(found: object, lane: Lane) -> str | None:
    """Say what is wrong with an answer: whatever a stranger's code returns is told, not trusted."""
    if type(found) not in ACTIONS:
        return f"evaluate gave a {type(found).__name__}: expected an action or None"
    assert isinstance(found, Action)  # noqa: S101 - of which ACTIONS are all
    if found.lane is not lane:
        return f"a policy of the lane {lane.value} gave {found.word}"
    for name in found.__struct_fields__:
        value = getattr(found, name)
        texts = value if name == "rights" else (value,)
        if name == "dedup_key" and value is None:
            continue
        if not isinstance(texts, tuple) or not all(type(text) is str for text in texts):
            return f"evaluate gave {found.word} whose {name} is a {type(value).__name__}"
    return None


def _shorten(action: Action) -> Action:
    """Cut what is told far beyond reading; a key is left whole, since equal keys are one matter."""
    long = {
        name: getattr(action, name)[:MAX_REASON_CHARS]
        for name in action.__struct_fields__
        if name not in ("dedup_key", "rights") and len(getattr(action, name)) > MAX_REASON_CHARS
    }
    return replace(action, **long) if long else action


def _short_key(key: str) -> str:
    """Put a digest in the place of a long key's end, so that different keys stay different."""
    if len(key) <= MAX_REASON_CHARS:
        return key
    return f"{key[:_KEY_CHARS]}… sha256:{canonical.text_digest(key)}"


def _text_or_none(key: object) -> str | None:
    return None if key is None else str(key)


def _told(error: BaseException) -> str:
    try:
        lines = str(error).splitlines()
    except Exception:  # noqa: BLE001 - a stranger's `__str__`
        lines = []
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def _word(found: object) -> str:
    return found.word if isinstance(found, Action) else str(found)


def _reads(reducer: Reducer, event: PolicyEvent) -> bool:
    if event.kind.value in reducer.on:
        return True
    return event.kind.value == "custom" and f"custom:{event.name}" in reducer.on


def find_mutable(value: Any) -> str | None:
    """Name the type that makes a value mutable; `None` for an immutable one.

    What holds other values is looked through, the newest first, up to 1,000 values in all.
    """
    if type(value) in _PLAIN:
        return None
    pending = [value]
    for _ in range(_MAX_CHECKED):
        if not pending:
            return None
        item = pending.pop()
        held = _held_by(item)
        if held is None:
            return type(item).__name__
        pending.extend(held)
    return None


def _held_by(item: Any) -> Iterable[Any] | None:
    """Give the values that an immutable one holds; `None` for one that can change."""
    match item:
        case tuple() | frozenset():
            return item
        case Log():  # what is older was looked at when it was new
            return (*(item.blocks[-1] if item.blocks else ()), *item.tail)
        case Table():
            return item.layers[0].values() if item.layers else ()
        case MappingProxyType():
            return item.values()
        case _ if isinstance(item, _ATOMS):
            return ()
        case msgspec.Struct() if item.__struct_config__.frozen:
            return msgspec.structs.astuple(item)
        case _ if is_dataclass(item) and not isinstance(item, type) and _is_frozen(item):
            return [getattr(item, field.name) for field in fields(item)]
        case _:
            return () if type(item).__module__ in _IMMUTABLE_MODULES else None


def _is_frozen(item: Any) -> bool:
    return bool(type(item).__dataclass_params__.frozen)
