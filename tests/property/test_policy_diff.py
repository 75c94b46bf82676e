"""Two versions of a policy: what holds whatever they did."""

from hypothesis import given
from hypothesis import strategies as st

from redrive.compare.policy_diff import CHANGES, diff_reports, first_differing_place
from redrive.compare.policy_report import CannotEvaluate
from tests.policy_documents import fire, report, session

SESSIONS = ("f:a", "f:b")
MIRRORED = {"new": "lost", "lost": "new"}

MATCHES = st.fixed_dictionaries(
    {
        "action": st.sampled_from(["allow", "ask", "deny"]),
        "cooldown_suppressed": st.booleans(),
        "on_head_path": st.booleans(),
        "reason": st.sampled_from(["x", "y"]),
    }
)
PLACES = st.tuples(st.sampled_from(SESSIONS), st.integers(0, 4))


@st.composite
def versions(draw):
    matches = draw(st.dictionaries(PLACES, MATCHES, max_size=8))
    missing = draw(st.sets(PLACES, max_size=3))
    parts = [
        session(name, [fire(name, n, **fields) for (owner, n), fields in sorted_(matches, name)])
        for name in SESSIONS
    ]
    places = [CannotEvaluate(f"{name}#e{n}", "why", "no ts") for name, n in sorted(missing)]
    return report(parts, cannot_evaluate=tuple(places))


def sorted_(matches, name):
    return sorted((item for item in matches.items() if item[0][0] == name), key=lambda i: i[0])


@given(versions(), versions())
def test_every_place_stands_once_and_the_counts_add_up(old, new):
    found = diff_reports(old, new, SESSIONS)
    refs = [entry.event_ref for entry in found.entries]
    assert len(refs) == len(set(refs))
    assert tuple(found.counts) == CHANGES
    assert sum(found.counts.values()) == len(refs)
    assert found.widened <= found.counts["new"] + found.counts["changed"]


@given(versions(), versions())
def test_the_way_back_mirrors_new_and_lost(old, new):
    there, back = diff_reports(old, new, SESSIONS), diff_reports(new, old, SESSIONS)
    assert [(e.event_ref, MIRRORED.get(e.change, e.change)) for e in there.entries] == [
        (e.event_ref, e.change) for e in back.entries
    ]


@given(versions())
def test_a_version_differs_from_itself_in_nothing(same):
    found = diff_reports(same, same, SESSIONS)
    assert found.counts["new"] == found.counts["lost"] == found.counts["changed"] == 0
    assert all(entry.fact == "" for entry in found.entries if entry.change == "same")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(VALUES)
def test_a_value_does_not_differ_from_itself(value):
    assert first_differing_place("x", value, value) == ""


@given(VALUES, VALUES)
def test_values_that_differ_do_so_somewhere_in_both_directions(old, new):
    there, back = (first_differing_place("x", *pair) for pair in ((old, new), (new, old)))
    assert there.partition(":")[0] == back.partition(":")[0]
    assert (there == "") == (back == "")
