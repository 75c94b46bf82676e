"""Which sessions are walked in one pass, and in which runs."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from redrive.record.event import Event, Kind, Note, Source, dump_payload
from redrive.record.session import FLAG_META
from redrive.replay.columns import columns_of
from redrive.replay.quick_walk import find_walk
from redrive.replay.walking import BASE

LETTERS = {
    "u": Kind.USER_MESSAGE,
    "a": Kind.MODEL_RESPONSE,
    "c": Kind.TOOL_CALL,
    "r": Kind.TOOL_RESULT,
    "q": Kind.MODEL_REQUEST,
    "n": Kind.NOTE,
    "s": Kind.SESSION_STARTED,
    "m": Kind.USER_MESSAGE,  # that a harness wrote
}


def session(*lines: str) -> list[Event]:
    """Make events of `KIND NODE [PARENT] [ACTOR] [GROUP]`; `-` is nothing."""
    events = []
    for seq, line in enumerate(lines):
        kind, node, parent, actor, group = (line.split() + ["-"] * 4)[:5]
        events.append(
            Event(
                id=f"e{seq}",
                session_id="t:s",
                seq=seq,
                kind=LETTERS[kind],
                node_id="" if node == "-" else node,
                source=Source("", seq, 1),
                payload=dump_payload(Note("")),
                parent_id=None if parent == "-" else parent,
                actor="main" if actor == "-" else actor,
                ts_ns=seq,
                group=None if group == "-" else group,
                flags=(FLAG_META,) if kind == "m" else (),
            )
        )
    return events


def runs_of(*lines: str) -> list[tuple[int, list[int]]]:
    walk = find_walk(columns_of([session(*lines)]), needs_ends=True)
    assert walk is not None
    return [(run.parent, list(run.seqs)) for run in walk.runs]


def ends_of(*lines: str) -> frozenset[int]:
    walk = find_walk(columns_of([session(*lines)]), needs_ends=True)
    assert walk is not None
    return walk.ends


def test_a_chain_is_one_run() -> None:
    assert runs_of("s -", "u 1", "a 2 1", "c 2 1", "r 3 2", "a 4 3") == [(BASE, [1, 2, 3, 4, 5])]


def test_results_side_by_side_belong_to_their_decision() -> None:
    assert runs_of("a 1", "c 1", "c 1", "r 2 1", "r 3 1", "u 4 2") == [(BASE, [0, 1, 2, 3, 4, 5])]


def test_pieces_of_an_answer_are_one_decision() -> None:
    assert runs_of("a 1 - - g", "c 2 1 - g", "r 3 2", "c 4 3 - g", "r 5 4", "u 6 3") == [
        (BASE, [0, 1, 2, 3, 4, 5])
    ]


def test_a_rewind_goes_on_from_the_end_of_the_decision_above() -> None:
    assert runs_of("a 1", "r 2 1", "r 3 1", "u 4 3", "u 5 2") == [
        (BASE, [0, 1, 2]),
        (0, [3]),
        (0, [4]),
    ]


def test_a_second_root_begins_a_path() -> None:
    assert runs_of("u 1", "a 2 1", "u 3", "a 4 3") == [(BASE, [0, 1]), (BASE, [2, 3])]


def test_events_outside_come_first_and_break_no_run() -> None:
    walk = find_walk(columns_of([session("u 1", "s -", "a 2 1")]), needs_ends=False)
    assert walk is not None
    assert list(walk.outside) == [1]
    assert [list(run.seqs) for run in walk.runs] == [[0, 2]]


def test_a_result_behind_something_else_is_judged_with_its_decision() -> None:
    assert runs_of("a 1", "q 2 1", "r 3 2", "u 4 3") == [(BASE, [0, 2, 1, 3])]


def test_a_sub_agent_is_a_path_of_its_own() -> None:
    walk = find_walk(
        columns_of([session("u 1", "a 2 1", "u 3 2 sub", "a 4 3 sub", "r 5 2")]), needs_ends=True
    )
    assert walk is not None
    found = [(run.parent, run.actor, list(run.seqs)) for run in walk.runs]
    assert found == [(BASE, "main", [0, 1, 4]), (BASE, "sub", [2, 3])]
    assert walk.ends == {1, 3}


def test_an_answer_without_calls_ends_a_turn_where_no_decision_follows() -> None:
    assert ends_of("u 1", "a 2 1", "c 2 1", "r 3 2", "a 4 3", "u 5 4", "a 6 5") == {4, 6}
    assert ends_of("u 1", "a 2 1", "m 3 2", "a 4 2") == {3}
    assert ends_of("u 1", "a 2 1", "a 3 2", "u 4 2") == {2}


@pytest.mark.parametrize(
    "lines",
    [
        ("a 2 1", "u 1"),  # before its parent
        ("u 1", "a 2 1", "u 1"),  # a node in two places
        ("a 1 - - g", "c 1 - - h"),  # two names of a group
    ],
)
def test_what_is_unsure_is_planned_in_full(lines: Sequence[str]) -> None:
    assert find_walk(columns_of([session(*lines)]), needs_ends=True) is None


def test_a_late_result_is_judged_with_its_decision() -> None:
    assert runs_of("a 1", "r 2 1", "u 3 2", "a 4 3", "r 5 1") == [(BASE, [0, 1, 4, 2, 3])]


def test_a_result_behind_a_user_message_is_judged_with_its_decision() -> None:
    assert runs_of("a 1", "u 2 1", "r 3 1") == [(BASE, [0, 2, 1])]


def test_a_late_piece_of_an_answer_is_judged_with_it() -> None:
    assert runs_of("a 1 - - g", "u 2 1", "c 3 2 - g") == [(BASE, [0, 2, 1])]
    assert runs_of("a 1 - - g", "a 2 1", "c 3 2 - g") == [(BASE, [0, 2, 1])]


def test_what_follows_a_piece_beside_the_first_goes_on_from_their_decision() -> None:
    assert runs_of("u 1", "a 2 1 - g", "u 3 2", "c 4 1 - g", "u 5 4") == [
        (BASE, [0, 1, 3]),
        (0, [2]),
        (0, [4]),
    ]


@pytest.mark.parametrize("n_between", [10, 1000])
def test_a_piece_far_behind_its_decision_is_planned_in_full(n_between: int) -> None:
    between = [f"u b{n} {f'b{n - 1}' if n else '1'}" for n in range(n_between)]
    events = session("a 1 - - g", *between, f"c 2 b{n_between - 1} - g")
    walk = find_walk(columns_of([events]), needs_ends=True)
    assert (walk is None) == (n_between > 64)


def test_only_the_last_answer_of_a_decision_ends_a_turn() -> None:
    assert ends_of("u 1", "a 2 1", "a 2 1", "u 3 2") == {2}
    assert ends_of("a 1 - - g", "u 2 1", "a 3 2 - g") == {2}


def test_what_a_harness_wrote_does_not_end_a_turn() -> None:
    assert ends_of("u 1", "a 2 1", "m 3 2", "a 4 3") == {3}
    assert ends_of("u 1", "a 2 1", "m 3 2 sub", "m 4 2", "a 5 4") == {4}


def test_what_follows_a_request_beside_the_path_is_not_taken_for_a_turn_of_its_own() -> None:
    assert runs_of("a 1", "u 2 1", "q 3 1", "r 4 3") == [(BASE, [0, 3]), (0, [1]), (0, [2])]


def test_a_decision_in_which_a_user_speaks_takes_no_results() -> None:
    assert runs_of("a 1", "u 1", "r 2 1", "u 3 1") == [(BASE, [0, 1]), (0, [2]), (0, [3])]


def test_a_note_is_in_the_way_only_where_its_time_may_be_asked_for() -> None:
    events = session("a 1", "n 2 1", "r 3 2")
    timed = find_walk(columns_of([events]), needs_ends=False)
    untimed = find_walk(
        columns_of([[*events[:2], replace(events[2], ts_ns=None)]]), needs_ends=False
    )
    assert timed is not None
    assert untimed is not None
    assert [list(run.seqs) for run in timed.runs] == [[0, 1, 2]]
    assert [list(run.seqs) for run in untimed.runs] == [[0, 2, 1]]


def test_a_link_on_a_later_event_of_a_node_is_none_of_its_own() -> None:
    assert find_walk(columns_of([session("u 1", "a 2", "c 2 1")]), needs_ends=False) is None


def test_a_session_without_links_goes_in_order_of_time() -> None:
    events = session("u 1", "a 2", "r 3")
    late = [events[0], replace(events[1], ts_ns=9), events[2]]
    assert find_walk(columns_of([events]), needs_ends=False) is not None
    assert find_walk(columns_of([late]), needs_ends=True) is None


def test_a_session_with_nothing_in_the_dag_has_no_runs() -> None:
    assert runs_of("s - - sub") == []


def test_a_session_without_events_has_no_runs() -> None:
    assert runs_of() == []
