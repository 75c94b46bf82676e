"""Properties of canonical arguments, evidence, request bodies and the shadow machine."""

import json
from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from redrive import canonical
from redrive.compare.divergence import first_difference
from redrive.record.signature import canonical_bytes
from redrive.replay.body import append_items, replace_value
from redrive.replay.persistent import Cursor, Log
from tests.recordings import Recording, call, decide, end, record, replay, result, shadow

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=4), values, max_size=4)


@st.composite
def written(draw: Any, of: Any = objects) -> tuple[str, Any]:
    """A JSON value and one of the many texts that mean it."""
    value = draw(of)
    space = draw(st.sampled_from(["", " ", "\n\t"]))
    text = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        separators=(f"{space},{space}", f"{space}:{space}"),
        indent=draw(st.sampled_from([None, 1])),
    )
    return space + text + space, value


# --- arguments --------------------------------------------------------------------------------


@given(written(values))
def test_every_text_of_a_value_has_the_canonical_bytes_of_that_value(pair):
    text, value = pair
    assert canonical_bytes(canonical.text_bytes(text)) == canonical.canonical(value)


@given(objects.filter(bool), st.data())
def test_a_key_that_stands_twice_is_always_found(value, data):
    key = data.draw(st.sampled_from(sorted(value)))
    again = data.draw(st.sampled_from(["1", "1.5", '":"', '"\\u003a"', "{}"]))
    text = json.dumps(value)
    doubled = f"{{{json.dumps(key)}: {again}, {text[1:]}"
    assert canonical_bytes(doubled.encode()) is None


# --- request bodies ---------------------------------------------------------------------------


@given(written(), st.text(max_size=4), st.integers() | st.floats(-9, 9))
def test_an_override_sets_one_value_and_keeps_every_other_byte(pair, key, value):
    text, before = pair
    changed = replace_value(text, key, value)
    assert json.loads(changed) == before | {key: value}
    put = canonical.encode(value).decode()
    places = [p for p in range(len(changed)) if changed.startswith(put, p)]
    if key in before:
        assert any(
            text.startswith(changed[:p]) and text.endswith(changed[p + len(put) :]) for p in places
        )
    else:
        added = len(changed) - len(text)
        assert any(changed[:p] + changed[p + added :] == text for p in range(len(changed)))


@given(written(), st.lists(values, max_size=3), st.lists(values, max_size=3))
def test_items_are_added_to_a_list_and_every_other_byte_is_kept(pair, items, more):
    text, before = pair
    body = replace_value(text, "messages", items)
    grown = append_items(body, "messages", more)
    assert json.loads(grown) == before | {"messages": items + more}
    added = len(grown) - len(body)
    assert any(grown[:p] + grown[p + added :] == body for p in range(len(grown) + 1))


# --- collections ------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=60))
def test_a_cursor_is_a_dict_whose_past_is_kept(moves):
    cursor, plain, past = Cursor(), dict[int, int](), []
    for key, count in moves:
        past.append((cursor, dict(plain)))
        cursor, plain = cursor.set(key, count), plain | {key: count}
    for kept, then in [*past, (cursor, plain)]:
        assert kept.merged() == then
        assert all(kept.get(key) == then.get(key, 0) for key in range(10))


@given(st.lists(st.integers(), max_size=200))
def test_a_log_is_a_list(items):
    log = Log[int]()
    for item in items:
        log = log.add(item)
    assert (list(log), len(log)) == (items, len(items))


@given(st.lists(st.integers(0, 2), max_size=30), st.lists(st.integers(0, 2), max_size=30))
def test_the_first_difference_is_that_of_a_plain_walk(left, right):
    shared = min(len(left), len(right))
    naive = next((p for p in range(shared) if left[p] != right[p]), None)
    expected = naive if naive is not None else (None if len(left) == len(right) else shared)
    assert first_difference(left, right) == expected


# --- the machine ------------------------------------------------------------------------------

names = st.sampled_from(["a", "b"])
arguments = st.sampled_from([{}, {"x": 1}, {"x": 2}])
decisions = st.lists(st.lists(st.tuples(names, arguments), max_size=3), min_size=1, max_size=5)


def recorded(plan: list[list[tuple[str, dict[str, int]]]]) -> Recording:
    """Record a session whose every result is another number, in call order."""
    lines, number = [], 0
    for calls in plan:
        made = []
        for name, args in calls:
            made.append(call(name, args, f"c{number}"))
            number += 1
        lines.append(decide(*made))
        lines.extend(result(one["call_id"], int(one["call_id"][1:])) for one in made)
    return record(*lines, decide(text="done"), end())


def scripted(plan: list[list[tuple[str, dict[str, int]]]]) -> list[dict[str, Any]]:
    lines = [{"tool_calls": [{"name": n, "args": a} for n, a in calls]} for calls in plan]
    return [*lines, {"text": "done", "final": True}]


@given(decisions)
def test_the_recorded_decisions_get_their_own_answers_back(plan):
    recording = recorded(plan)
    run = replay(recording, scripted(plan))
    n_calls = sum(map(len, plan))
    assert [int(bytes(c.result)) for c in run.served] == list(range(n_calls))
    assert (run.missing, run.unused) == (None, ())
    assert shadow(recording, scripted(plan)).verdict == "IDENTICAL_REPLAY"


@given(decisions, decisions)
def test_any_script_is_served_as_a_plain_matcher_would(plan, other):
    queues: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, (name, args) in enumerate(one for calls in plan for one in calls):
        queues[name, json.dumps(args)].append(number)
    expected: list[int] = []
    missed = None
    for place, calls in enumerate(other[: len(plan) + 1 + 3], start=1):
        for name, args in calls:
            queue = queues[name, json.dumps(args)]
            if not queue:
                missed = (place, name, args)
                break
            expected.append(queue.pop(0))
        if missed:
            break
    run = replay(recorded(plan), scripted(other))
    assert [int(bytes(c.result)) for c in run.served] == expected
    found = run.missing and (run.missing.decision, run.missing.tool, run.missing.arguments)
    assert found == missed
    left = sorted(number for queue in queues.values() for number in queue)
    assert [int((cell.call_id or "")[1:]) for cell in run.unused] == left


@given(decisions, st.data())
def test_a_run_from_any_decision_is_the_tail_of_the_whole_run(plan, data):
    first = data.draw(st.integers(1, len(plan) + 1))
    recording = recorded(plan)
    whole = replay(recording, scripted(plan))
    tail = replay(recording, scripted(plan)[first - 1 :], from_decision=first)
    assert tail.decisions == whole.decisions[first - 1 :]
    assert tail.served == tuple(c for c in whole.served if c.decision >= first)
    assert tail.unused == ()
