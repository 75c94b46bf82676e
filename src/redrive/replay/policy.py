"""What a policy is: the kinds it judges, how it may act, and what a replay must know of it.

Knows policies and actions as declarations. Must not know how events are folded (`folding`), where
a policy's code comes from, nor who answers an inference.

Source: DESIGN.md §7.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from redrive.errors import PluginError
from redrive.record.event import Kind
from redrive.replay.policy_event import PolicyEvent
from redrive.replay.policy_state import State

CUSTOM_PREFIX = "custom:"
NEVER_OFFERED = frozenset({Kind.NOTE, Kind.DAMAGE})
MAX_REASON_CHARS = 2000


class Lane(StrEnum):
    """How a policy may act: a gate decides on an action, an observer speaks or prepares."""

    GATE = "gate"
    OBSERVER = "observer"


class Action(msgspec.Struct, frozen=True):
    """What a policy does about an event.

    Attributes:
        reason: for people: what was seen, and why it matters.
        dedup_key: fires with the same key are one matter to a cooldown; the policy's own
            `dedup_key` where absent.
    """

    reason: str
    dedup_key: str | None = None

    lane: ClassVar[Lane] = Lane.OBSERVER
    word: ClassVar[str] = ""
    strictness: ClassVar[int] = 0


class Allow(Action, frozen=True):
    """Let the call through without asking anyone; it must not raise its context's rights."""

    lane, word, strictness = Lane.GATE, "allow", 1


class Ask(Action, frozen=True):
    """Let a person decide."""

    lane, word, strictness = Lane.GATE, "ask", 2


class Deny(Action, frozen=True):
    """Do not let the call through."""

    lane, word, strictness = Lane.GATE, "deny", 3


class Notify(Action, frozen=True):
    """Tell the user."""

    word = "Notify"


class Inject(Action, frozen=True):
    """Put a text into the agent's context; `rights` names tools that it would unlock."""

    text: str = ""
    rights: tuple[str, ...] = ()

    word = "Inject"


class Prepare(Action, frozen=True):
    """Prepare something in the background, and speak only if it is worth it.

    A replay stops here: whether the user would have been told is not decided by a recording.
    """

    task: str = ""
    rights: tuple[str, ...] = ()

    word = "Prepare"


PREPARE_NOTE = "Notify precision: online-only"
ACTIONS: tuple[type[Action], ...] = (Allow, Ask, Deny, Notify, Inject, Prepare)


def strictest(actions: tuple[Action, ...]) -> Action | None:
    """Choose among the actions of several gates on one event; none is `None`."""
    return max(actions, key=lambda action: action.strictness, default=None)


class Reducer:
    """Folds events to a value of its own; derive from it.

    Attributes:
        on: event kinds that it reads, `custom:NAME` included.
        initial: the value before any event. Values must be immutable: numbers, texts, tuples,
            frozen sets, frozen structs and dataclasses, and the persistent collections of
            `redrive.policy`.
    """

    on: ClassVar[tuple[str, ...]] = ()
    initial: ClassVar[Any] = None

    def fold(self, value: Any, event: PolicyEvent) -> Any:
        """Give the value after an event; the same object where the event changes nothing."""
        raise NotImplementedError


class Policy:
    """A policy: derive from it, name the event kinds in `on`, and write `evaluate`.

    Attributes:
        name: the class's name if empty.
        version: changes with every change of what it does; any text.
        on: event kinds that it judges, such as `tool.call` or `custom:NAME`.
        lane: `gate` or `observer`.
        cooldown_s: seconds after a fire in which further matches are suppressed; observers only.
        per_segment: fires per segment (between two user messages); observers only.
        critical: of a gate, that it must decide whatever else fails.
        needs: names of L2 inferences that `state.infer` may ask for.
        reducers: name → `Reducer` whose value is `state[name]`.
        uses_standard_state: false says that `evaluate` reads none of it, and saves the fold.
        libraries: third-party modules that its code imports; they are imported before clocks,
            files and the network are replaced.
        notes: what every reader of a report on it must know.
    """

    name: ClassVar[str] = ""
    version: ClassVar[str] = "0"
    on: ClassVar[tuple[str, ...]] = ()
    lane: ClassVar[str] = Lane.OBSERVER
    cooldown_s: ClassVar[float | None] = None
    per_segment: ClassVar[int | None] = None
    critical: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ()
    reducers: ClassVar[Mapping[str, Reducer]] = {}
    uses_standard_state: ClassVar[bool] = True
    libraries: ClassVar[tuple[str, ...]] = ()
    notes: ClassVar[tuple[str, ...]] = ()

    def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
        """Judge one event on the state of everything before it on its own path; pure."""
        raise NotImplementedError

    def dedup_key(self, event: PolicyEvent, state: State) -> str | None:  # noqa: ARG002
        """Give the key under which a match counts for a cooldown; one for all by default."""
        return None


class PolicySpec(msgspec.Struct, frozen=True):
    """What a policy declares, checked; see `Policy`. `kinds` and `customs` are `on`, split."""

    name: str
    version: str
    on: tuple[str, ...]
    kinds: frozenset[Kind]
    customs: frozenset[str]
    lane: Lane
    cooldown_ns: int | None
    per_segment: int | None
    critical: bool
    needs: tuple[str, ...]
    uses_standard_state: bool
    reducers: tuple[str, ...]
    notes: tuple[str, ...] = ()
    unenforced: tuple[str, ...] = ()

    def wants(self, event: PolicyEvent) -> bool:
        """Say whether the policy judges an event of this kind."""
        if event.kind in self.kinds:
            return True
        return bool(self.customs) and event.kind is Kind.CUSTOM and event.name in self.customs


def no_spec(name: str, lane: str) -> PolicySpec:
    """Give the spec of a policy that could not be loaded, of which nothing is known."""
    return PolicySpec(
        name=name,
        version="",
        on=(),
        kinds=frozenset(),
        customs=frozenset(),
        lane=Lane(lane),
        cooldown_ns=None,
        per_segment=None,
        critical=False,
        needs=(),
        uses_standard_state=False,
        reducers=(),
    )


def read_spec(policy: Policy) -> PolicySpec:
    """Check what a policy declares.

    Raises:
        PluginError: a declaration is wrong; names the policy, what was found and what may stand.
    """
    name = str(policy.name or type(policy).__name__)
    lane = _read_lane(name, policy.lane)
    kinds, customs = split_kinds(name, policy.on)
    if not kinds and not customs:
        raise _wrong(name, "judges no event kind", "set `on`, such as ('tool.call',)")
    cooldown_ns = _read_cooldown(name, policy.cooldown_s)
    per_segment = _read_budget(name, policy.per_segment)
    if lane is Lane.GATE and (cooldown_ns is not None or per_segment is not None):
        what = "cooldown_s" if cooldown_ns is not None else "per_segment"
        raise _wrong(name, f"is a gate with {what}", "a gate that was silent once is no gate")
    if lane is Lane.GATE and policy.needs:
        raise _wrong(name, "is a gate that needs an inference", "a gate never rests on L2")
    if policy.critical and lane is not Lane.GATE:
        raise _wrong(name, "is critical and no gate", "only a gate can be critical")
    for word in ("needs", "notes", "libraries"):
        _check_texts(name, word, getattr(policy, word))
    _check_reducers(name, policy.reducers)
    return PolicySpec(
        name=name,
        version=str(policy.version),
        on=tuple(policy.on),
        kinds=kinds,
        customs=customs,
        lane=lane,
        cooldown_ns=cooldown_ns,
        per_segment=per_segment,
        critical=bool(policy.critical),
        needs=tuple(policy.needs),
        uses_standard_state=bool(policy.uses_standard_state),
        reducers=tuple(policy.reducers),
        notes=tuple(policy.notes),
        unenforced=tuple(getattr(policy, "unenforced", ())),
    )


def split_kinds(name: str, on: tuple[str, ...]) -> tuple[frozenset[Kind], frozenset[str]]:
    """Split declared kinds into the core's and the names of custom ones.

    Raises:
        PluginError: a word is no kind, or one that is never offered to a policy.
    """
    _check_texts(name, "on", on)
    kinds, customs = set[Kind](), set[str]()
    known = {kind.value: kind for kind in Kind if kind not in NEVER_OFFERED}
    for word in map(str, on):
        if word.startswith(CUSTOM_PREFIX) and word != CUSTOM_PREFIX:
            customs.add(word.removeprefix(CUSTOM_PREFIX))
        elif word in known:
            kinds.add(known[word])
        else:
            raise _wrong(name, f"no event kind {word!r}", f"kinds: {', '.join(known)}, custom:NAME")
    return frozenset(kinds), frozenset(customs)


def _check_texts(name: str, word: str, value: object) -> None:
    """Refuse what is no tuple of texts: one text alone would be read letter by letter."""
    is_listed = isinstance(value, tuple | list) and all(isinstance(item, str) for item in value)
    if not is_listed:
        raise _wrong(name, f"`{word}` is {value!r}", "write a tuple of texts, such as ('a', 'b')")


def _check_reducers(name: str, reducers: object) -> None:
    if not isinstance(reducers, Mapping):
        raise _wrong(name, f"`reducers` is {reducers!r}", "write {'NAME': Reducer()}")
    for key, reducer in reducers.items():
        if not isinstance(key, str) or not isinstance(reducer, Reducer):
            found = f"reducer {key!r} is a {type(reducer).__name__}"
            raise _wrong(name, found, "an instance of a class derived from redrive.policy.Reducer")
        split_kinds(f"{name}, reducer {key}", reducer.on)


def _read_lane(name: str, lane: str) -> Lane:
    try:
        return Lane(lane)
    except ValueError:
        raise _wrong(name, f"no lane {lane!r}", "gate or observer") from None


def _read_cooldown(name: str, seconds: object) -> int | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 1e9:
        raise _wrong(name, f"cooldown_s is {seconds!r}", "a number of seconds above 0")
    return round(seconds * 10**9)


def _read_budget(name: str, budget: object) -> int | None:
    if budget is None:
        return None
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise _wrong(name, f"per_segment is {budget!r}", "a number of fires, from 1")
    return budget


def _wrong(name: str, found: str, expected: str) -> PluginError:
    return PluginError(f"policy {name}: {found}", hint=expected)
