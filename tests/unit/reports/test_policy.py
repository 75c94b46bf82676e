import json

import msgspec
import pytest

from redrive import canonical
from redrive.compare.policy_report import CannotEvaluate
from redrive.reports.policy import diff_lines, policy_lines
from tests.policy_documents import (
    big,
    document,
    fire,
    hostile,
    report,
    session,
    small,
    small_diff,
)
from tests.schemas import check


def told(made):
    return "\n".join(policy_lines(made))


def test_the_headline_has_the_figures_of_both_scopes():
    assert (
        "no-force-push 1.2.0  fired 4 on the head path (5 on all branches), suppressed 1 (1),"
        " cannot evaluate 0, 0 faults, 2 sessions, 800 events (240 judged)"
    ) in told(small())


def test_faults_and_violated_invariants_come_before_the_fires():
    text = told(small())
    place = text.index("unverified-claims 0.4")
    words = (
        "FAULT stand-in at guards.py:41: calls time.time(), judging x#e7",
        "FAULT scan: imports socket, at load",
        "invariant loop_free: VIOLATED × 3",
        "#e52: two Notify",
        "fires by tool",
    )
    places = [text.index(word, place) for word in words]
    assert places == sorted(places)


def test_an_invariant_that_was_not_exercised_says_what_that_means():
    line = next(line for line in policy_lines(small()) if "not_exercised" in line)
    assert line.endswith("neither held nor violated)")


def test_a_fire_shows_its_context_reason_and_marks():
    lines = list(policy_lines(small()))
    start = next(n for n, line in enumerate(lines) if "#e31" in line)
    assert lines[start].endswith("[suppressed by claude_code:5b1f2c8e-41aa#e16]")
    assert lines[start + 1].startswith('    psql "$DATABASE_URL"')
    assert lines[start + 2 : start + 4] == [
        "    reason: rewrites a branch that others pull from",
        "    note: within 300 s of the fire",
    ]
    discarded = next(line for line in lines if "#e8 " in line)
    assert "no time recorded" in discarded
    assert discarded.endswith("[discarded path]")


def test_a_fire_may_lack_a_reason_a_step_and_what_holds_it_back():
    made = fire("s", 1, reason="", step=None, cooldown_suppressed=True)
    text = told(document(report((session("s", (made,)),))))
    assert "before step 1" in text
    assert text.count("reason:") == 0
    assert "[suppressed]" in text


def test_what_cannot_be_evaluated_names_the_missing_fact():
    text = told(small())
    assert "cannot evaluate, by missing fact: no ts 1, topic 1" in text
    assert "#e61: the inference is not in the cache (topic)" in text
    assert "unreplayable: codex:broken: the chain breaks at node n3" in text


def test_augmented_mode_shows_the_model_and_notes_are_shown():
    text = told(small())
    assert 'mode augmented, needs is_frustrated, inferences by {"asked":"smol@1"' in text
    assert "note: Notify precision: online-only" in text
    assert "note: not enforced: a foreign hook may let the call through" in text
    assert "rests on: {" in text


def test_holds_are_named():
    entry = report(cooldown_s=90.5, per_segment=2, critical=False)
    assert "cooldown 90.5 s, at most 2 per segment, guards.py" in told(document(entry))


def test_the_limits_of_the_report_are_said():
    text = told(small())
    assert "Purity nets scan, stand-in" in text
    assert "Not caught  a C extension that reads the clock" in text
    assert "It cannot show where it should have fired" in text
    bare = told(document(nets=(), lets_through=(), redaction=""))
    assert "Purity nets none were on" in bare
    assert "Not caught" not in bare
    assert "Redacted" not in bare


def test_an_interrupted_replay_says_so_first():
    made = document(report(), is_partial=True, sessions_left=("a", "b"))
    lines = list(policy_lines(made))
    assert lines[1:4] == [
        "PARTIAL: interrupted, 2 sessions not replayed",
        "  not replayed: a",
        "  not replayed: b",
    ]


def test_fires_by_tool_follow_the_chosen_branches():
    made = msgspec.structs.replace(small(), branches="all")
    assert "fires by tool, all branches: Bash 3, Edit 2" in told(made)
    assert "fires by tool, head path: Bash 2, Edit 2" in told(small())


def test_long_lists_are_cut_with_their_count():
    lines = list(policy_lines(big()))
    assert len(lines) < 150
    assert "    … 4980 more of 5000 (all with --json)" in lines
    assert "    … 110 more of 120 (all with --json)" in lines
    tools = [fire("s", n, tool=f"t{n}") for n in range(12)]
    assert ", 2 more" in told(document(report((session("s", tools),))))


@pytest.mark.parametrize("made", [hostile(), hostile("")])
def test_hostile_text_is_inert(made):
    text = told(made)
    assert text.replace("\n", "").isprintable()
    assert len(text) < 100_000


def test_a_diff_shows_figures_then_each_change_with_its_fact():
    lines = list(diff_lines(small_diff()))
    assert lines[:3] == [
        "no-force-push  1.2.0 (5c5c5c5c5c5c) → 2.0.0 (9d9d9d9d9d9d), on 1 session",
        "  new 1, lost 1, changed 1, cannot_evaluate 1, same 1",
        "  widened: 1 (new fires, or stricter ones, on a live path)",
    ]
    text = "\n".join(lines)
    assert "#e3  action: deny → ask" in text
    assert "#e5  in the new version: no ts" in text
    assert "same: " not in text


def test_a_diff_shows_what_fires_from_other_facts_and_what_no_one_fires_on():
    made = small_diff()
    same = msgspec.structs.replace(made.entries[0], fact="reason: a → b")
    blind = msgspec.structs.replace(made.entries[-1], old=None)
    text = "\n".join(diff_lines(msgspec.structs.replace(made, entries=(same, blind))))
    assert "same: 1 (the same action, from other facts)" in text
    assert "reason: a → b" in text


def parsed(made):
    return json.loads(canonical.encode(made))


@pytest.mark.parametrize("made", [small(), big(40, 3), hostile(), document()])
def test_a_document_has_the_shape_of_its_schema(made):
    check(parsed(made), "policy")


def test_a_diff_has_the_shape_of_its_schema():
    check(parsed(small_diff()), "policy_diff")


def test_the_places_of_a_report_are_all_judged_by_their_own_fact():
    places = tuple(CannotEvaluate(f"s#{n}", "why", "no ts") for n in range(12))
    assert "… 2 more of 12" in told(document(report(cannot_evaluate=places)))
