import msgspec
import pytest

from redrive.compare.policy_diff import (
    CHANGES,
    diff_reports,
    first_differing_place,
    owner_of,
    widens,
)
from redrive.compare.policy_report import CannotEvaluate, PolicyFault, Unreplayable
from tests.policy_documents import fire, report, session, small_diff

S = "f:s"


def version(*fires, **fields):
    return report((session(S, fires),) if fires else (), **fields)


def diff(old, new, sessions=(S,)):
    return diff_reports(old, new, sessions)


def only(old, new):
    (entry,) = diff(old, new).entries
    return entry.change, entry.fact


def held(number, by=1, **fields):
    return fire(S, number, cooldown_suppressed=True, suppressed_by=f"{S}#e{by}", **fields)


def test_every_place_is_counted_once_under_one_change():
    found = small_diff()
    assert [(e.event_ref[-2:], e.change) for e in found.entries] == [
        ("e1", "same"),
        ("e2", "lost"),
        ("e3", "changed"),
        ("e4", "new"),
        ("e5", "cannot_evaluate"),
    ]
    assert found.counts == dict.fromkeys(CHANGES, 1)
    assert found.old["version"] == "1.2.0"
    assert found.new["digest"] == "9d" * 32


def test_equal_versions_differ_in_no_fact():
    assert only(version(fire(S, 1)), version(fire(S, 1))) == ("same", "")


def test_a_fire_that_the_other_version_holds_back_is_lost_and_says_by_what():
    fires, holds = version(fire(S, 2)), version(held(2))
    assert only(fires, holds) == ("lost", f"suppressed: by the fire at {S}#e1")
    assert only(holds, fires) == ("new", f"suppressed: by the fire at {S}#e1 → not suppressed")
    assert diff(fires, holds).entries[0].new is None


def test_a_match_that_a_segment_budget_holds_back_names_no_fire():
    holds = version(fire(S, 2, cooldown_suppressed=True))
    assert only(version(fire(S, 2)), holds) == ("lost", "suppressed: held back")


def test_matches_that_both_versions_hold_back_are_no_entry():
    assert diff(version(held(2)), version(held(2))).entries == ()


def test_a_fire_without_a_match_on_the_other_side_names_the_action():
    assert only(version(fire(S, 1)), version()) == ("lost", "action: deny → no match")
    assert only(version(), version(fire(S, 1))) == ("new", "action: no match → deny")


def test_an_event_that_a_version_is_not_offered_is_told_from_one_it_lets_pass():
    deaf = version(on=("tool.result",))
    fact = "no match, tool.call is not in `on`"
    assert only(version(fire(S, 1)), deaf) == ("lost", f"action: deny → {fact}")
    assert only(deaf, version(fire(S, 1))) == ("new", f"action: {fact} → deny")
    custom = version(on=("custom:claim",))
    assert only(custom, version(fire(S, 1, kind="custom")))[1] == "action: no match → deny"


@pytest.mark.parametrize(
    ("fields", "fact"),
    [
        ({"action": "ask", "dedup_key": "z", "reason": "z"}, "action: deny → ask"),
        ({"dedup_key": None, "reason": "z"}, "dedup_key: branch:main → absent"),
        ({"reason": "z" * 99}, f"reason: a → {'z' * 80}…"),
        ({"inferences": {"angry": True}}, "inferences.angry: absent → true"),
    ],
)
def test_the_first_differing_fact_comes_in_a_fixed_order(fields, fact):
    entry = only(version(fire(S, 1, reason="a")), version(fire(S, 1, **{"reason": "a"} | fields)))
    assert entry == ("changed" if "action" in fields else "same", fact)


def test_a_fire_for_the_same_reason_on_another_state_names_the_state():
    old = version(fire(S, 1), snapshots={"s1": {"verification": {"passed": True}}})
    new = version(fire(S, 1), snapshots={"s1": {"verification": {"passed": False}}})
    assert only(old, new) == ("same", "state.verification.passed: true → false")
    bare = version(fire(S, 1), snapshots={})
    assert only(bare, bare) == ("same", "")


@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        ({"b": 1, "a": 2}, {"b": 2, "a": 3}, "x.a: 2 → 3"),
        ({"a": 1}, {"a": True}, "x.a: 1 → true"),
        ({"a": 1}, {"a": 1.0}, ""),
        ({"a": True}, {"a": True}, ""),
        ({"a": None}, {}, "x.a: null → absent"),
        ({"a": [1, 2]}, {"a": [1, 3]}, "x.a[1]: 2 → 3"),
        ({"a": [1]}, {"a": [1, {"b": 2}]}, 'x.a[1]: absent → {"b":2}'),
        ({"a": {}}, {"a": []}, "x.a: {} → []"),
        ({"\ud800": 1}, {"\ud800": "\udc00"}, 'x.\ud800: 1 → "\\udc00"'),
        ({"k" * 90: 1}, {"k" * 90: 2}, f"x.{'k' * 80}…: 1 → 2"),
    ],
)
def test_values_are_compared_as_json_keys_in_sorted_order(old, new, fact):
    assert first_differing_place("x", old, new) == fact


def test_a_deep_value_is_no_matter():
    old, new = 1, 2
    for _ in range(5000):
        old, new = {"a": old}, {"a": new}
    assert first_differing_place("x", old, new).endswith(".a: 1 → 2")


def missing(number, fact="no ts"):
    return CannotEvaluate(f"{S}#e{number}", "why", fact)


def test_a_place_that_one_version_cannot_judge_is_neither_new_nor_lost():
    blind = version(cannot_evaluate=(missing(1, "is_frustrated"),))
    fires = version(fire(S, 1))
    assert only(fires, blind) == ("cannot_evaluate", "in the new version: no is_frustrated")
    assert only(blind, fires) == ("cannot_evaluate", "in the old version: no is_frustrated")
    assert only(blind, blind) == ("cannot_evaluate", "in both versions: no is_frustrated")
    other = version(cannot_evaluate=(missing(1),))
    fact = "in the old version: no is_frustrated; in the new version: no ts"
    assert only(blind, other) == ("cannot_evaluate", fact)


@pytest.mark.parametrize(
    ("fields", "fact"),
    [
        ({"unreplayable": (Unreplayable(S, "a cycle"),)}, "unreplayable: a cycle"),
        ({"faults": (PolicyFault("limits", "10 s", "", S),)}, "fault: limits: 10 s"),
        ({"faults": (PolicyFault("scan", "socket", ""),)}, "fault: scan: socket"),
    ],
)
def test_silence_after_a_fault_proves_nothing(fields, fact):
    silent = version(**fields)
    fires = version(fire(S, 1))
    assert only(fires, silent) == ("cannot_evaluate", f"in the new version: {fact}")
    both = version(fire(S, 1), **fields)
    assert only(fires, both) == ("same", "")


def test_faults_say_which_version_they_are_of():
    faulty = version(faults=(PolicyFault("scan", "imports socket", "p.py:1"),))
    found = diff(faulty, faulty).faults
    assert [fault.what for fault in found] == [
        "in the old version: imports socket",
        "in the new version: imports socket",
    ]


def test_places_come_in_the_order_of_sessions_then_events_and_foreign_sessions_are_left_out():
    parts = [session(name, [fire(name, 9), fire(name, 2)]) for name in ("b", "a", "zz")]
    places = (CannotEvaluate("a#e1", "", "no ts"), CannotEvaluate("zz#e1", "", "no ts"))
    old = report(parts, cannot_evaluate=(*places, CannotEvaluate("a#e2", "", "no ts")))
    refs = [entry.event_ref for entry in diff_reports(old, old, ("b", "a")).entries]
    assert refs == ["b#e2", "b#e9", "a#e2", "a#e9", "a#e1"]


def test_ids_may_hold_the_sign_that_parts_them():
    assert owner_of("a#b#c", {"a", "a#b"}) == "a#b"
    assert owner_of("a#b#c", {"a"}) == "a"
    assert owner_of("x#b", {"a"}) is None


@pytest.mark.parametrize(
    ("old", "new", "widened"),
    [
        (None, "deny", 1),
        (None, "Notify", 1),
        ("allow", "ask", 1),
        ("ask", "deny", 1),
        ("deny", "ask", 0),
        ("deny", "deny", 0),
        ("Notify", "Inject", 0),
        ("ask", "Inject", 0),
        ("deny", None, 0),
    ],
)
def test_a_widening_is_a_new_fire_or_a_stricter_action_on_a_live_path(old, new, widened):
    def sides(**fields):
        return [
            version(*([fire(S, 1, action=action, **fields)] if action else []))
            for action in (old, new)
        ]

    assert diff(*sides()).widened == widened
    assert diff(*sides(on_head_path=False)).widened == 0


def test_what_cannot_be_evaluated_widens_nothing():
    entry = diff(version(cannot_evaluate=(missing(1),)), version(fire(S, 1))).entries[0]
    assert not widens(entry)
    assert not widens(msgspec.structs.replace(entry, change="changed"))
