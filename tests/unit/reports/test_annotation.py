"""A fire's lines: every fact a rater needs, nothing that a terminal would obey."""

from redrive.reports.annotation import facts_of, fire_lines
from tests.policy_reports import HOSTILE, fire


def test_every_part_has_its_line():
    shown = list(fire_lines(fire(1, notes=("online-only",), inferences={"mood": 0.5}), "{}"))
    assert shown == [
        "reason    deletes files outside the project, case 1",
        "on        rm -rf ../build-1",
        "before    user: clean up the build",
        "before    bash: ls ..",
        "where     test:a#e1 · bash · main · step 2 · 2026-11-30T17:00:00.000000000Z",
        'inferred  {"mood":0.5}',
        "state     {}",
        "note      online-only",
    ]


def test_absent_facts_have_no_place():
    found = facts_of(fire(1, tool=None, step=None, ts=None, on_head_path=False))
    assert found == ["test:a#e1", "tool.call", "main", "not on the live path"]


def test_a_text_of_several_lines_is_one_block():
    assert list(fire_lines(fire(1, context="a\nb", reason="", before=()), ""))[:2] == [
        "on        a",
        "          b",
    ]


def test_a_long_state_is_cut():
    state = "\n".join(map(str, range(1000)))
    assert sum(1 for _ in fire_lines(fire(1), state)) < 60


def test_hostile_text_is_escaped():
    hostile = fire(1, reason=HOSTILE, context=HOSTILE, before=(HOSTILE,), notes=(HOSTILE,))
    shown = "\n".join(fire_lines(hostile, HOSTILE))
    assert not set(shown) & {"\x1b", "\x07", "\u202e", "\u2028", "\ud800"}
