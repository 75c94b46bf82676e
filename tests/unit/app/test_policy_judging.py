"""Whatever a policy does wrong is a fault of its own that names the net; the others go on."""

from dataclasses import dataclass, field
from datetime import date
from types import MappingProxyType
from typing import ClassVar

import msgspec
import pytest

from redrive.app.policy_judging import find_mutable
from redrive.errors import PluginError
from redrive.policy import Deny, Log, Notify, Policy, Prepare, Reducer, Table
from redrive.record.event import Kind, StateInferred, UserMessage, raw_of
from tests.policy_sessions import fired, line_of, live, replay, replay_one


def session(count=5):
    return line_of([(Kind.USER_MESSAGE, UserMessage(f"m{n}")) for n in range(count)])


class Base(Policy):
    on = ("user.message",)


class Honest(Base):
    def evaluate(self, event, state):
        return Notify("seen")


def make(evaluate, **fields):
    """Make a policy class of a function."""
    return type(
        "Odd", (Base,), {"evaluate": lambda self, event, state: evaluate(event, state)} | fields
    )


class Counting(Base):
    def __init__(self):
        self.seen = 0

    def evaluate(self, event, state):
        self.seen += 1
        return Notify(f"{self.seen} so far")


SHARED = []


def remembers(event, state):
    SHARED.append(event.id)
    return Notify(f"{len(SHARED)}")


def recurses(event, state):
    return recurses(event, state)


def fails_oddly(event, state):
    class OddError(Exception):
        def __str__(self):
            raise ValueError

    raise OddError


def own_class(event, state):
    class Shout(Notify):
        pass

    return Shout("!")


def raising(error):
    def evaluate(event, state):
        raise error

    return evaluate


@pytest.mark.parametrize(
    ("evaluate", "net", "what"),
    [
        (raising(ZeroDivisionError("by 0\nmore")), "error", "ZeroDivisionError: by 0"),
        (raising(KeyError()), "error", "KeyError"),
        (raising(SystemExit(3)), "error", "SystemExit: 3"),
        (raising(MemoryError()), "limits", "ran out of memory"),
        (fails_oddly, "error", "OddError"),
        (recurses, "limits", "recursed too deeply"),
        (lambda event, state: "deny", "error", "evaluate gave a str"),
        (lambda event, state: True, "error", "evaluate gave a bool"),
        (lambda event, state: Notify, "error", "evaluate gave a StructMeta"),
        (own_class, "error", "evaluate gave a Shout"),
        (lambda event, state: Notify(5), "error", "whose reason is a int"),
        (lambda event, state: Notify("x", dedup_key=5), "error", "whose dedup_key is a int"),
        (lambda event, state: Prepare("x", rights=["Bash"]), "error", "whose rights is a list"),
        (lambda event, state: Deny("x"), "error", "the lane observer gave deny"),
        (remembers, "recheck", "answers differently when asked again: Notify, then Notify"),
        (
            lambda event, state: setattr(event, "seq", 7),
            "error",
            "AttributeError: immutable type",
        ),
        (
            lambda event, state: setattr(state, "needs", ()),
            "error",
            "AttributeError: immutable type",
        ),
        (lambda event, state: state.own.update(a=1), "error", "AttributeError"),
        (lambda event, state: state.inferences.update(a=1), "error", "AttributeError"),
        (lambda event, state: state["none"], "error", "KeyError"),
        (lambda event, state: state.infer("none"), "error", "KeyError"),
    ],
)
def test_each_fault_names_its_net_and_the_others_go_on(evaluate, net, what):
    SHARED.clear()
    odd, honest = replay(session(), make(evaluate), Honest)
    assert (odd.faults[0].net, odd.faults[0].event_ref) == (net, "test:s#e0")
    assert odd.faults[0].what.startswith(what) or what in odd.faults[0].what
    assert odd.faults[0].where
    assert not odd.fires
    assert len(fired(honest)) == 5


def test_a_policy_that_counts_on_itself_is_caught_by_a_fresh_instance():
    outcome = replay_one(session(), Counting)
    assert fired(outcome) == ["e0"]  # the first answer is the same on a fresh instance
    assert {fault.net for fault in outcome.faults} == {"recheck"}


def test_an_observer_is_stopped_after_three_faults_and_a_gate_never():
    observer = replay_one(session(), make(raising(ValueError())))
    gate = replay_one(session(), make(raising(ValueError()), lane="gate"))
    assert (observer.n_faults, observer.stopped) == (3, "stopped after 3 faults in this session")
    assert (gate.n_faults, gate.stopped, len(gate.faults)) == (5, None, 3)
    assert observer.offered == gate.offered == 5


def test_a_policy_that_cannot_be_made_again_is_at_fault():
    made = []

    class Once(Honest):
        def __init__(self):
            made.append(self)
            if len(made) > 3:
                raise ValueError("no more")

    outcome = replay_one(session(1), Once)
    assert [fault.what for fault in outcome.faults] == ["ValueError: no more"]


def force(event, state):
    msgspec.structs.force_setattr(state.standard, "moment", state.standard.moment + 1)


def force_event(event, state):
    msgspec.structs.force_setattr(event, "ts_ns", (event.ts_ns or 0) + 1)


@pytest.mark.parametrize(("change", "word"), [(force, "state"), (force_event, "event")])
def test_a_change_by_force_is_seen_where_every_event_is_judged_twice(change, word):
    def evaluate(event, state):
        if event.id == "e1":  # the state before e0 is everyone's
            change(event, state)

    outcome = replay_one(session(2), make(evaluate), recheck_all=True)
    assert [(f.net, f.what) for f in outcome.faults] == [("recheck", f"changes the {word}")]


def test_an_inference_cannot_be_changed():
    events = line_of(
        [
            (Kind.USER_MESSAGE, UserMessage("u")),
            (Kind.STATE_INFERRED, StateInferred("topic", raw_of({"a": [1]}))),
            (Kind.USER_MESSAGE, UserMessage("v")),
        ]
    )

    def evaluate(event, state):
        return Notify("x") if state.infer("topic")["a"].append(2) else None

    def reads(event, state):
        return Notify(str(state.infer("topic")["a"]))

    one, two = replay(events, make(evaluate, needs=("topic",)), make(reads, needs=("topic",)))
    assert one.faults[0].what.startswith("AttributeError")
    assert two.fires[0].inferences == {"topic": {"a": [1]}}
    assert two.snapshots[0]["inferred"] == {}


def test_a_missing_inference_cannot_be_taken_for_a_no():
    def evaluate(event, state):
        try:
            return Notify("yes") if state.infer("topic") else None
        except Exception:  # noqa: BLE001 - what a policy must not get away with
            return Notify("no")

    outcome = replay_one(session(1), make(evaluate, needs=("topic",)))
    assert not outcome.fires
    assert [cannot.fact for cannot in outcome.cannot] == ["topic"]


# --- dedup keys


def keyed(key):
    return type("Odd", (Honest,), {"dedup_key": key})


def test_a_dedup_key_that_raises_is_a_fault():
    outcome = replay_one(session(1), keyed(lambda self, event, state: 1 / 0))
    assert [fault.what for fault in outcome.faults] == ["ZeroDivisionError: division by zero"]
    assert not outcome.fires


def test_a_dedup_key_that_is_no_text_is_written_as_one():
    outcome = replay_one(session(1), keyed(lambda self, event, state: 7))
    assert outcome.fires[0].dedup_key == "7"


def test_a_dedup_key_may_be_a_text_of_the_class():
    outcome = replay_one(session(1), type("Odd", (Honest,), {"dedup_key": "all"}))
    assert outcome.fires[0].dedup_key == "all"


# --- reducers


def reducing(value, initial=None):
    class Odd(Reducer):
        on = ("user.message",)

        def fold(self, own, event):
            return value

    Odd.initial = initial
    return type("Own", (Honest,), {"reducers": {"own": Odd()}})


@dataclass(frozen=True)
class Frozen:
    items: object = ()


@dataclass
class Loose:
    items: list[int] = field(default_factory=list)


class Struct(msgspec.Struct, frozen=True):
    items: object = ()


class LooseStruct(msgspec.Struct):
    items: int = 0


MUTABLE = [
    ([], "list"),
    ({}, "dict"),
    (set(), "set"),
    (bytearray(), "bytearray"),
    ((1, [2]), "list"),
    (frozenset({Loose}), "type"),
    (MappingProxyType({"a": []}), "list"),
    (Log().add({}), "dict"),
    (Table().set("a", []), "list"),
    (Frozen([]), "list"),
    (Struct({}), "dict"),
    (Loose(), "Loose"),
    (LooseStruct(), "LooseStruct"),
    (object(), "object"),
]
IMMUTABLE = [
    None,
    1.5,
    "a",
    b"a",
    Kind.CUSTOM,
    (1, ("a", None)),
    frozenset({1}),
    MappingProxyType({"a": 1}),
    Log(),
    Table(),
    Table().set("a", Log().add(1)),
    Frozen((1,)),
    Struct(Frozen()),
    date(2026, 1, 1),
    session(1)[0],
]


@pytest.mark.parametrize(("value", "name"), MUTABLE)
def test_a_reducer_that_gives_what_can_be_changed_is_at_fault(value, name):
    assert find_mutable(value) == name
    odd, honest = replay(session(), reducing(value), Honest)
    assert odd.faults[0].net == "error"
    assert odd.faults[0].what.startswith(f"reducer 'own' gave a {name}: ")
    assert odd.stopped is not None
    assert len(fired(honest)) == 5


@pytest.mark.parametrize(("value", "name"), MUTABLE)
def test_a_reducer_that_begins_with_what_can_be_changed_is_not_loaded(value, name):
    with pytest.raises(PluginError, match=f"reducer 'own' begins with a {name}"):
        live(reducing(None, initial=value))


@pytest.mark.parametrize("value", IMMUTABLE)
def test_what_cannot_be_changed_may_be_a_state(value):
    assert find_mutable(value) is None
    assert len(fired(replay_one(session(), reducing(value, initial=value)))) == 5


def test_what_is_newest_is_looked_at_first_and_the_search_is_bounded():
    assert find_mutable((*range(5000), [])) == "list"
    assert find_mutable(([], *range(5000))) is None
    full = Log()
    for number in range(63):
        full = full.add(number)
    assert find_mutable(full.add([])) == "list"


def test_a_reducer_that_raises_is_at_fault_and_its_value_stays():
    class Failing(Reducer):
        on: ClassVar = ("user.message",)
        initial = 0

        def fold(self, value, event):
            if event.id == "e1":
                raise ValueError("no")
            return value + 1

    class Own(Honest):
        reducers: ClassVar = {"n": Failing()}

        def evaluate(self, event, state):
            return Notify(str(state["n"]))

    outcome = replay_one(session(), Own)
    assert [fire.reason for fire in outcome.fires] == ["0", "1", "1", "2", "3"]
    assert [(f.what, f.event_ref) for f in outcome.faults] == [("ValueError: no", "test:s#e1")]
