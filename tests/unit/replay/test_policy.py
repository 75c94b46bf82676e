import pytest

from redrive.errors import PluginError
from redrive.policy import Allow, Ask, Deny, Notify, Policy, Reducer
from redrive.record.event import Custom, Kind, UserMessage
from redrive.replay.policy import Lane, no_spec, read_spec, strictest
from redrive.replay.policy_event import view
from tests.policy_sessions import make_event


class Plain(Policy):
    on = ("tool.call", "custom:freeze")


class Freezes(Reducer):
    on = ("custom:freeze",)
    initial = False


def spec_of(**fields):
    return read_spec(type("Odd", (Plain,), fields)())


def test_a_spec_is_what_is_declared():
    spec = spec_of(
        name="n",
        version=2,
        cooldown_s=1.5,
        per_segment=3,
        needs=("topic",),
        notes=["x"],
        reducers={"frozen": Freezes()},
        unenforced=("its order",),
    )
    assert (spec.name, spec.version, spec.on) == ("n", "2", ("tool.call", "custom:freeze"))
    assert (spec.kinds, spec.customs) == ({Kind.TOOL_CALL}, {"freeze"})
    assert (spec.lane, spec.cooldown_ns, spec.per_segment) == (Lane.OBSERVER, 1_500_000_000, 3)
    assert (spec.needs, spec.notes, spec.reducers) == (("topic",), ("x",), ("frozen",))
    assert spec.unenforced == ("its order",)
    assert not spec.critical


def test_a_policy_without_a_name_has_that_of_its_class():
    assert read_spec(Plain()).name == "Plain"
    lost = no_spec("lost", "gate")
    assert (lost.name, lost.lane) == ("lost", "gate")


def test_a_policy_judges_its_kinds_alone():
    spec = read_spec(Plain())
    freeze, other = (view(make_event(0, Kind.CUSTOM, Custom(name))) for name in ("freeze", "other"))
    assert spec.wants(freeze)
    assert not spec.wants(other)
    assert not spec.wants(view(make_event(0, Kind.USER_MESSAGE, UserMessage("u"))))
    calls_only = spec_of(on=("tool.call",))
    assert not calls_only.wants(freeze)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"on": ()}, "judges no event kind"),
        ({"on": "tool.call"}, "`on` is 'tool.call'"),
        ({"on": None}, "`on` is None"),
        ({"on": (1,)}, "`on` is"),
        ({"on": ("tool.calls",)}, "no event kind 'tool.calls'"),
        ({"on": ("custom:",)}, "no event kind 'custom:'"),
        ({"on": ("custom",)}, None),
        ({"on": ("note",)}, "no event kind 'note'"),
        ({"on": ("damage",)}, "no event kind 'damage'"),
        ({"lane": "critic"}, "no lane 'critic'"),
        ({"cooldown_s": 0}, "cooldown_s is 0"),
        ({"cooldown_s": -1.0}, "cooldown_s is -1.0"),
        ({"cooldown_s": float("nan")}, "cooldown_s is nan"),
        ({"cooldown_s": float("inf")}, "cooldown_s is inf"),
        ({"cooldown_s": True}, "cooldown_s is True"),
        ({"cooldown_s": "5"}, "cooldown_s is '5'"),
        ({"per_segment": 0}, "per_segment is 0"),
        ({"per_segment": True}, "per_segment is True"),
        ({"per_segment": 1.5}, "per_segment is 1.5"),
        ({"lane": "gate", "cooldown_s": 1}, "is a gate with cooldown_s"),
        ({"lane": "gate", "per_segment": 1}, "is a gate with per_segment"),
        ({"lane": "gate", "needs": ("x",)}, "is a gate that needs an inference"),
        ({"critical": True}, "is critical and no gate"),
        ({"needs": "completion_claim"}, "`needs` is 'completion_claim'"),
        ({"notes": "x"}, "`notes` is 'x'"),
        ({"libraries": "x"}, "`libraries` is 'x'"),
        ({"reducers": []}, r"`reducers` is \[\]"),
        ({"reducers": {"a": Freezes}}, "reducer 'a' is a type"),
        ({"reducers": {1: Freezes()}}, "reducer 1 is a Freezes"),
        (
            {"reducers": {"a": type("Bad", (Freezes,), {"on": ("note",)})()}},
            "reducer a: no event kind 'note'",
        ),
    ],
)
def test_a_wrong_declaration_is_named(fields, found):
    if found is None:
        assert spec_of(**fields).kinds == {Kind.CUSTOM}
        return
    with pytest.raises(PluginError, match=found) as caught:
        spec_of(**fields)
    assert caught.value.hint


def test_the_strictest_gate_wins():
    allow, ask, deny = Allow("a"), Ask("b"), Deny("c")
    assert strictest((allow, deny, ask)) == deny
    assert strictest((allow, ask)) == ask
    assert strictest(()) is None


def test_a_policy_writes_its_own_judgement():
    event = view(make_event(0, Kind.USER_MESSAGE, UserMessage("u")))
    with pytest.raises(NotImplementedError):
        Plain().evaluate(event, None)
    with pytest.raises(NotImplementedError):
        Reducer().fold(None, event)
    assert Plain().dedup_key(event, None) is None
    assert Notify("x").lane is Lane.OBSERVER
