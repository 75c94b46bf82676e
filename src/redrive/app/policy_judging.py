"""Runs one policy on one event at a time, and turns whatever goes wrong into a fault.

Knows a live policy, the purity nets, and what a fault is. Must not know sessions or order. A
policy is code of a stranger: it may raise, lie, or change what it was given; it never stops the
others.

Source: DESIGN.md §7 "Purity".
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType, TracebackType
from typing import Any, Protocol

import msgspec

from redrive.compare.policy_report import PolicyFault
from redrive.errors import PurityFault
from redrive.record.event import Kind
from redrive.replay.persistent import Log, Table
from redrive.replay.policy import Action, Lane, Policy, PolicySpec, Reducer
from redrive.replay.policy_event import PolicyEvent
from redrive.replay.policy_state import InferenceMissing, State
from redrive.sandbox.sealed import Violation

_ATOMS: frozenset[type] = frozenset({str, int, float, bytes, bool, type(None)})
_SOUND: tuple[type, ...] = (*_ATOMS, Enum, Log, Table)
_MAX_CHECKED = 1000
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
        make: gives a fresh instance.
        spec: what it declares.
        place: gives file:line of a traceback in the policy's own code.
        nets: the stand-ins.
    """

    def __init__(
        self,
        make: Callable[[], Policy],
        spec: PolicySpec,
        place: Callable[[TracebackType | None], str],
        nets: Nets,
    ) -> None:
        self.spec = spec
        self._make = make
        self._place = place
        self._nets = nets
        self._policy = make()
        self.reducers = tuple(self._policy.reducers.items())
        self.initial = MappingProxyType({name: r.initial for name, r in self.reducers})
        self.is_gate = spec.lane is Lane.GATE
        # Per kind whether each of the reducers reads it; custom events are told apart by name.
        self._readers: dict[Kind, tuple[tuple[str, Callable[[Any, PolicyEvent], Any]], ...]] = {
            kind: tuple([(n, r.fold) for n, r in self.reducers if kind.value in r.on])
            for kind in Kind
            if kind is not Kind.CUSTOM
        }
        words = {word for _, reducer in self.reducers for word in reducer.on}
        is_custom = any(word.partition(":")[0] == Kind.CUSTOM for word in words)
        self.folded = frozenset(kind for kind, readers in self._readers.items() if readers) | (
            {Kind.CUSTOM} if is_custom else frozenset()
        )

    def reads(self, kind: Kind) -> bool:
        """Say whether events of this kind are judged, or may be read by a reducer."""
        return kind in self.spec.kinds or kind in self.folded

    def renew(self) -> None:
        """Begin a session with a fresh instance, so that none can carry what it saw in another."""
        self._policy = self._make()

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
        if not isinstance(found, Action):
            what = f"evaluate gave a {type(found).__name__}: expected an action or None"
            return PolicyFault("error", what, self._place_of(self._policy.evaluate))
        if found.lane is not self.spec.lane:
            what = f"a policy of the lane {self.spec.lane.value} gave {found.word}"
            return PolicyFault("error", what, self._place_of(self._policy.evaluate))
        return found

    def dedup_key(
        self, action: Action, event: PolicyEvent, state: State
    ) -> str | PolicyFault | None:
        """Give the key under which a match counts for a cooldown."""
        if action.dedup_key is not None:
            return action.dedup_key
        declared = self._policy.dedup_key
        if not callable(declared):
            return None if declared is None else str(declared)
        key = self._guard(declared, event, state)
        return key if key is None or isinstance(key, PolicyFault) else str(key)

    def recheck(self, event: PolicyEvent, state: State, first: object) -> PolicyFault | None:
        """Judge an event a second time, on a fresh instance: the answer must be the same."""
        kept, self._policy = self._policy, self._make()
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

    def mutation(self, what: str) -> PolicyFault:
        """Say that the policy changed what it was given."""
        return PolicyFault("recheck", f"changes the {what}", self._place_of(self._policy.evaluate))

    def _guard(self, call: Callable[[Any, Any], Any], first: Any, second: Any) -> Any:
        """Run code of the policy behind the nets."""
        nets = self._nets
        nets.is_armed = True
        try:
            found = call(first, second)
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


def _told(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def _word(found: object) -> str:
    return found.word if isinstance(found, Action) else str(found)


def _reads(reducer: Reducer, event: PolicyEvent) -> bool:
    if event.kind.value in reducer.on:
        return True
    return event.kind.value == "custom" and f"custom:{event.name}" in reducer.on


def find_mutable(value: Any) -> str | None:
    """Name the type that makes a value mutable; `None` for an immutable one.

    Tuples, frozen sets and read-only mappings are looked through, up to 1,000 items in all.
    """
    if type(value) in _ATOMS:
        return None
    pending = [value]
    for _ in range(_MAX_CHECKED):
        if not pending:
            return None
        item = pending.pop()
        if isinstance(item, _SOUND):
            continue
        if isinstance(item, tuple | frozenset):
            pending.extend(item)
        elif isinstance(item, MappingProxyType):
            pending.extend(item.values())
        elif not _is_frozen(item):
            return type(item).__name__
    return None


def _is_frozen(item: Any) -> bool:
    if isinstance(item, msgspec.Struct):
        return bool(item.__struct_config__.frozen)
    parameters = getattr(type(item), "__dataclass_params__", None)
    if parameters is not None:
        return bool(parameters.frozen)
    return type(item).__module__ in ("decimal", "fractions", "datetime", "pathlib", "re", "uuid")
