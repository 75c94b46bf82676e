import msgspec
import pytest

from redrive.record.event import Usage
from redrive.record.trajectory import PathBreak
from redrive.reports.sessions import (
    actor_lines,
    branch_lines,
    break_lines,
    excerpt_text,
    header_lines,
    match_lines,
    session_list_lines,
    step_lines,
    thread_lines,
    timeline_lines,
    usage_text,
)
from redrive.reports.views import (
    ActorView,
    BranchView,
    CallView,
    ClosureMark,
    DamagedView,
    Excerpt,
    MatchView,
    MissingView,
    SessionList,
    SessionView,
    StepView,
    ThreadView,
    TimelineEntry,
)

HOSTILE = "\x1b[2J\n\u202e[red]"
SHOWN = "\\x1b[2J\\n\\u202e[red]"
VIEW = SessionView("f:1", "f", 1, "ab" * 32, 5, "f:1")


def text_of(lines):
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        (None, "tokens not recorded"),
        (Usage(), "tokens not recorded"),
        (Usage(input_tokens=0, output_tokens=2), "tokens in 0, out 2"),
        (Usage(total_tokens=7), "tokens total 7"),
        (Usage(cost_usd="0.50"), "tokens not recorded; cost 0.50 USD"),
    ],
)
def test_tokens_and_cost_are_shown_only_where_recorded(usage, text):
    assert usage_text(usage) == text


def test_a_list_groups_sessions_by_thread():
    other = msgspec.structs.replace(VIEW, session_id="f:2", first="A", last="B", complete=False)
    listed = SessionList((VIEW, other), (ThreadView("f:1", ("f:1", "f:2")),))
    text = text_of(session_list_lines(listed))
    assert "thread f:1: 2 sessions" in text
    assert "  f:2  A – B" in text
    assert "incomplete, revision 1" in text
    assert text.endswith("2 sessions in 1 thread")
    alone = SessionList((VIEW,), (ThreadView("f:1", ("f:1",)),))
    assert text_of(session_list_lines(alone)).startswith("f:1  no time recorded")


def test_an_older_revision_is_listed_by_the_name_that_opens_it():
    newer = msgspec.structs.replace(VIEW, session_id="f:1@2", revision=2)
    listed = SessionList((VIEW, newer), (ThreadView("f:1", ("f:1", "f:1@2")),))
    names = [line.split()[0] for line in session_list_lines(listed) if line.startswith("  f:")]
    assert names == ["f:1@1", "f:1@2"]


def test_a_header_names_what_is_known_and_nothing_else():
    text = text_of(header_lines(VIEW))
    assert "Agent" not in text
    assert "completeness not known" in text
    full = msgspec.structs.replace(
        VIEW, agent="a", outcome="failure", orphan_calls=2, complete=True, first="T", last="T"
    )
    text = text_of(header_lines(full))
    assert "Outcome   failure" in text
    assert "complete, 2 calls without a result" in text
    assert "Time      T\n" in text


@pytest.mark.parametrize(
    ("recorder", "complete", "text"),
    [
        ("recording", True, "recording now, revision 1"),
        ("ended early", True, "recorder ended early, complete so far, revision 1"),
        ("ended early", False, "recorder ended early, incomplete so far, revision 1"),
        ("ended early", None, "recorder ended early, completeness not known so far, revision 1"),
    ],
)
def test_a_list_says_where_the_recorder_of_a_session_stands(recorder, complete, text):
    view = msgspec.structs.replace(VIEW, recorder=recorder, complete=complete)
    listed = SessionList((view,), (ThreadView("f:1", ("f:1",)),))
    assert text in text_of(session_list_lines(listed))


def test_nothing_from_a_recording_reaches_the_terminal_raw():
    view = msgspec.structs.replace(
        VIEW, session_id=HOSTILE, task=HOSTILE, agent=HOSTILE, cwd=HOSTILE, git=HOSTILE
    )
    thread = ThreadView(HOSTILE, (HOSTILE, "other"))
    step = StepView(
        1,
        HOSTILE,
        model=HOSTILE,
        text=Excerpt(HOSTILE),
        calls=(CallView(1, HOSTILE, HOSTILE, Excerpt(HOSTILE)),),
        usage=Usage(cost_usd=HOSTILE),
    )
    match = MatchView(HOSTILE, 1, "k", HOSTILE, HOSTILE, 1, HOSTILE, 0, 1, tool=HOSTILE)
    text = text_of(
        [
            *header_lines(view),
            *thread_lines(thread, HOSTILE),
            *actor_lines([ActorView(HOSTILE, 1, 1, 1, HOSTILE, HOSTILE)]),
            *branch_lines([BranchView(HOSTILE, HOSTILE, 1, 1, "live", HOSTILE, HOSTILE)]),
            *timeline_lines([TimelineEntry(1, HOSTILE, "k", HOSTILE, status=HOSTILE)]),
            *step_lines([step]),
            *match_lines([match]),
        ]
    )
    assert SHOWN in text
    assert not {"\x1b", "\u202e"} & set(text)
    assert all("[red]" in line for line in text.split("\n") if "x1b" in line)


def test_a_thread_of_one_is_not_shown():
    assert list(thread_lines(ThreadView("t", ("s",)), "s")) == []
    assert "  * s" in list(thread_lines(ThreadView("t", ("s", "u")), "s"))


def test_steps_carry_the_marks_of_the_audit():
    missing = (MissingView("clock", "a"), MissingView("clock", "b"), MissingView("prng", "c"))
    marks = {
        "[not audited]": None,
        "[closed]": ClosureMark("closed", decision_closed=True),
        "[open: decision-closed, missing clock, prng]": ClosureMark(
            "open", decision_closed=True, missing=missing
        ),
        "[open]": ClosureMark("open", decision_closed=False),
    }
    for text, mark in marks.items():
        assert text in text_of(step_lines([StepView(1, "n", closure=mark)]))


def test_a_step_shows_what_it_says_or_thinks_and_its_calls():
    call = CallView(1, "t", "error", Excerpt("{}"), exit_code=2, result_bytes=9)
    text = text_of(step_lines([StepView(1, "n", reasoning=Excerpt("why"), calls=(call,))]))
    assert "thinks: why" in text
    assert "t {} → error, exit 2, 9 bytes" in text
    copied = text_of(step_lines([StepView(1, "n", inherited=True)]))
    assert "copied from the parent session" in copied


def test_an_excerpt_says_how_much_was_left_out():
    assert excerpt_text(Excerpt("  a  ")) == "a"
    assert excerpt_text(Excerpt("abc", 10, "d"), 5) == "abc… (10 characters)"
    assert excerpt_text(Excerpt("abcdef"), 5) == "abcde… (6 characters)"


def test_a_timeline_marks_what_is_not_on_the_live_path():
    entry = TimelineEntry(1, "main", "tool.call", "t", discarded=True, inherited=True, step=3)
    assert text_of(timeline_lines([entry])).endswith("[discarded, inherited]")


def test_matches_are_grouped_by_session():
    one = MatchView("s", 1, "k", "main", "text", 2, "line", 0, 1, step=4, discarded=True)
    lines = list(match_lines([one, one, msgspec.structs.replace(one, session_id="t")]))
    assert lines == [
        "s",
        "  1 step 4 main k text:2 [discarded]: line",
        "  1 step 4 main k text:2 [discarded]: line",
        "t",
        "  1 step 4 main k text:2 [discarded]: line",
    ]


def test_a_damaged_session_is_marked_or_named_below():
    views = (VIEW, msgspec.structs.replace(VIEW, session_id="f:2", damage=HOSTILE))
    threads = (ThreadView("f:1", ("f:1",)), ThreadView("f:2", ("f:2",)))
    damaged = (DamagedView("f:2", HOSTILE), DamagedView("f:3", HOSTILE))
    text = text_of(session_list_lines(SessionList(views, threads, damaged)))
    assert text.count(f"    DAMAGED: {SHOWN}") == 1
    assert f"f:3  DAMAGED: {SHOWN}" in text
    assert text.endswith("2 sessions in 2 threads, 2 damaged")


def test_counts_agree_with_their_nouns():
    one = msgspec.structs.replace(
        VIEW, events=1, model_calls=1, tool_calls=0, branches=1, orphan_calls=1, inherited=2
    )
    text = text_of(header_lines(one))
    assert "1 event, 1 model call, 0 tool calls, 1 branch" in text
    assert ", 1 call without a result, 2 events copied from a parent session" in text


@pytest.mark.parametrize(
    ("breaks", "text"),
    [
        (None, ""),
        (PathBreak("cycle", "a", "b"), "cycle: node a names as its parent b, which is below it"),
        (PathBreak("broken_chain", "a", HOSTILE), f"parent {SHOWN}, not recorded"),
    ],
)
def test_a_path_that_stops_short_says_where(breaks, text):
    assert text in text_of(break_lines(breaks))


def test_a_break_off_the_path_is_named_with_the_record():
    view = msgspec.structs.replace(VIEW, complete=False, broken="broken_chain")
    assert "Record    incomplete, a parent is not recorded" in text_of(header_lines(view))
