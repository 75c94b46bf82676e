"""A fire's card: every fact a rater needs, the event last, nothing that a terminal would obey."""

import pytest

from redrive.reports.annotation import (
    Item,
    action_text,
    context_lines,
    facts_of,
    fire_lines,
    no_state,
    place_text,
    show_command,
    state_lines,
    state_text,
)
from tests.policy_reports import HOSTILE, fire


def test_every_part_has_its_line():
    shown = fire(1, asked="tidy up", notes=("online-only",), inferences={"mood": 0.5})
    item = Item(shown, {"cwd": "x"}, "test:a", 2, 5, "Migrate the tables")
    assert [*context_lines(item), *fire_lines(item)] == [
        "task      Migrate the tables",
        "where     fire 2 of 5 in this session · step 2 · 2026-11-30 17:00:00 UTC · bash · main"
        " · test:a#e1",
        "closer    redrive show test:a",
        "asked     tidy up",
        "before    user: clean up the build",
        "before    bash: ls ..",
        'inferred  {"mood":0.5}',
        "note      online-only",
        "state     o opens it",
        "on        rm -rf ../build-1",
        "did       deny (refused)",
        "reason    deletes files outside the project, case 1",
    ]


def test_absent_facts_have_no_place():
    bare = fire(1, tool=None, step=None, ts=None, on_head_path=False)
    assert facts_of(bare) == ["tool.call", "main", "not on the live path", "test:a#e1"]
    assert place_text(Item(bare)) == show_command(Item(bare)) == ""
    assert list(context_lines(Item(fire(1, before=()), {"own": {}})))[1:] == [
        "state     this policy reads no state"
    ]


def test_a_session_s_name_is_quoted_for_a_shell():
    item = Item(fire(1), session_id="a; rm -rf ~")
    assert show_command(item) == "redrive show 'a; rm -rf ~'"


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ("ask", "ask (asked for confirmation)"),
        ("deny", "deny (refused)"),
        ("Notify", "Notify"),
    ],
)
def test_a_gate_s_action_says_what_it_means(action, text):
    assert action_text(action) == text


def test_a_text_of_several_lines_is_one_block():
    assert list(fire_lines(Item(fire(1, context="a\nb", reason=""))))[:2] == [
        "on        a",
        "          b",
    ]


def test_what_is_empty_zero_or_absent_is_left_out_of_the_state():
    state = {
        "turn": 0,
        "passed": False,
        "files": [],
        "own": {"seen": {}, "last": None, "name": "", "n": 3, "all": [0, {"x": None}]},
    }
    left = " ".join(state_text(state).split())
    assert left == '{ "passed": false, "own": { "n": 3, "all": [ 0, {} ] } }'


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (None, "the report holds none"),
        ({}, "this policy reads no state"),
        ({"own": {}}, "this policy reads no state"),
        ({"own": {"n": 0}}, "nothing in it yet"),
    ],
)
def test_where_no_state_is_left_it_is_said_why(state, text):
    assert state_text(state) == ""
    assert no_state(state) == text
    assert list(state_lines(Item(fire(1), state))) == [f"state     {text}"]


def test_a_long_state_is_cut():
    state = {str(number): number for number in range(1000)}
    lines = list(state_lines(Item(fire(1), state)))
    assert len(lines) == 41
    assert lines[-1].strip() == "…"


def test_hostile_text_is_escaped():
    hostile = fire(
        1, reason=HOSTILE, context=HOSTILE, before=(HOSTILE,), notes=(HOSTILE,), asked=HOSTILE
    )
    item = Item(hostile, {HOSTILE: HOSTILE}, HOSTILE, 1, 2, HOSTILE)
    shown = "\n".join([*context_lines(item), *fire_lines(item), *state_lines(item)])
    assert not set(shown) & {"\x1b", "\x07", "\u202e", "\u2028", "\ud800"}
