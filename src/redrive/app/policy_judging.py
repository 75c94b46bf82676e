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

from redrive.compare.policy_report import PolicyFault
from redrive.errors import PluginError, PurityFault
from redrive.replay.persistent import Log, Table
from redrive.replay.policy import ACTIONS, Action, Policy, PolicySpec, Reducer
from redrive.replay.policy_event import PolicyEvent
from redrive.replay.policy_state import InferenceMissing, State
from redrive.sandbox.sealed import Violation

_ATOMS = (str, int, float, bytes, bool, type(None), Enum, Raw, UnsetType)
_IMMUTABLE_MODULES = ("decimal", "fractions", "datetime", "pathlib", "re", "uuid")
_MAX_CHECKED = 1000
_LIMITS = (
    (MemoryError, "limits", "ran out of memory"),
    (RecursionError, "limits", "recursed too deeply"),
)


class Nets(Protocol):
    """The stand-ins of a sealed process; see `redrive.sandbox.standins`."""

    is_armed: bool

    def take_violations(self) -> Sequence[Violation]:
        """Give what was caught since the last call, and forget it."""
        ...


class NoNets:
    """No stand-ins: for policies whose code is redrive's own, where nothing can be sealed."""

    is_armed = False

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
        for name, reducer in self.reducers:
            wrong = find_mutable(reducer.initial)
            if wrong is not None:
                raise PluginError(
                    f"policy {spec.name}: reducer {name!r} begins with a {wrong}",
                    hint="values of a state must be immutable: tuple, frozenset, Log, Table",
                )
        self.initial = MappingProxyType({name: r.initial for name, r in self.reducers})

    def renew(self) -> None:
        """Begin a session with a fresh instance, so that none can carry what it saw in another."""
        self._policy = self._make()

    def fold(self, own: Mapping[str, Any], event: PolicyEvent) -> Mapping[str, Any] | PolicyFault:
        """Give the values of the policy's own reducers after an event."""
        changed: dict[str, Any] = {}
        for name, reducer in self.reducers:
            if not _reads(reducer, event):
                continue
            value = self._guard(lambda r=reducer, n=name: r.fold(own[n], event))  # type: ignore[misc]
            if isinstance(value, PolicyFault):
                return value
            if value is own[name]:
                continue
            wrong = find_mutable(value)
            if wrong is not None:
                what = f"reducer {name!r} gave a {wrong}: values of a state must be immutable"
                return PolicyFault("error", what, self._place_of(reducer.fold))
            changed[name] = value
        return MappingProxyType({**own, **changed}) if changed else own

    def evaluate(self, event: PolicyEvent, state: State) -> Action | PolicyFault | str | None:
        """Judge an event once.

        Returns:
            The action, `None`, a fault, or the name of the inference that is missing.
        """
        found = self._guard(lambda: self._policy.evaluate(event, state))
        if isinstance(found, InferenceMissing):
            return found.name
        if found is None or isinstance(found, PolicyFault):
            return found
        wrong = _what_is_wrong(found)
        if wrong is None and found.lane is not self.spec.lane:
            wrong = f"a policy of the lane {self.spec.lane.value} gave {found.word}"
        if wrong is not None:
            return PolicyFault("error", wrong, self._place_of(self._policy.evaluate))
        action: Action = found
        return action

    def dedup_key(
        self, action: Action, event: PolicyEvent, state: State
    ) -> str | PolicyFault | None:
        """Give the key under which a match counts for a cooldown."""
        if action.dedup_key is not None:
            return action.dedup_key
        declared = self._policy.dedup_key
        if not callable(declared):
            return None if declared is None else str(declared)
        key = self._guard(lambda: declared(event, state))
        if key is None or isinstance(key, str | PolicyFault):
            return key
        what = f"dedup_key gave a {type(key).__name__}: expected a text or None"
        return PolicyFault("error", what, self._place_of(declared))

    def recheck(self, event: PolicyEvent, state: State, first: object) -> PolicyFault | None:
        """Judge an event a second time, on a fresh instance: the answer must be the same."""
        kept, made = self._policy, self._guard(self._make)
        if isinstance(made, PolicyFault):
            return made
        self._policy = made
        second = self.evaluate(event, state)
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

    def _guard(self, call: Callable[[], Any]) -> Any:
        """Run code of the policy behind the nets."""
        nets = self._nets
        nets.is_armed = True
        try:
            found = call()
        except BaseException as error:  # noqa: BLE001 - whatever a stranger's code raises
            found = self._caught(error)
        finally:
            nets.is_armed = False
        violations = nets.take_violations()
        if violations and not (isinstance(found, PolicyFault) and found.net == "stand-in"):
            first = violations[0]
            what = f"{first.what}, and swallowed the refusal"
            return PolicyFault("stand-in", what, f"{first.file}:{first.line}" if first.file else "")
        return found

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


def _what_is_wrong(found: object) -> str | None:
    """Say why an answer is no action that a report can hold; `None` where it is one."""
    if type(found) not in ACTIONS:
        return f"evaluate gave a {type(found).__name__}: expected an action or None"
    for name, value in msgspec.structs.asdict(found).items():  # type: ignore[arg-type]
        if name == "rights":
            is_right = isinstance(value, tuple) and all(type(item) is str for item in value)
        else:
            is_right = type(value) is str or (name == "dedup_key" and value is None)
        if not is_right:
            return f"evaluate gave an action whose {name} is a {type(value).__name__}"
    return None


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
