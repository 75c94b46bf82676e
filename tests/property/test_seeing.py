"""Whatever a recording holds, it is shown, and nothing of it reaches the terminal raw."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.app.effects import EffectScan
from redrive.app.excerpts import texts_in
from redrive.app.opening import OpenedSession
from redrive.app.raw_events import dump_event
from redrive.app.searching import texts_of
from redrive.app.seeing import actors_of, branches_of, steps_of
from redrive.app.survey import Survey
from redrive.app.timeline import timeline_of
from redrive.importers.interchange import IMPORTER
from redrive.record.event import payload_of
from redrive.record.places import build_places
from redrive.record.session import NO_TS, MemoryReader
from redrive.reports.effects import effect_lines, totals_lines
from redrive.reports.escape import escape
from redrive.reports.sessions import actor_lines, branch_lines, step_lines, timeline_lines
from redrive.stores.port import SessionRow
from tests.helpers import events_from, index_of

texts = st.one_of(
    st.sampled_from(("\x1b[2J", "\u202e", "a\nb", "\ud800", "", "d0", "c0", "Exit code 3")),
    st.text(max_size=8),
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=5
)
tools = st.sampled_from(
    (
        "Bash",
        "exec_command",
        "apply_patch",
        "Write",
        "WebFetch",
        "write_stdin",
        "str_replace_editor",
    )
)
arguments = st.one_of(
    st.dictionaries(
        st.sampled_from(("command", "cmd", "input", "chars", "path", "url", "workdir")), values
    ),
    values,
)
calls = st.fixed_dictionaries(
    {"name": st.one_of(tools, texts)},
    optional={"call_id": st.one_of(texts, scalars), "args": arguments, "args_json": texts},
)
ids = st.sampled_from(("d0", "d1", "d2", "\x1b", "u", "r"))
actors = st.sampled_from(("main", "sub", "\x1b[1m"))
times = st.sampled_from(("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "never"))
lines = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("decision"),
            "id": ids,
            "output": st.fixed_dictionaries(
                {}, optional={"text": texts, "tool_calls": st.lists(calls, max_size=3)}
            ),
        },
        optional={"parent": ids, "actor": actors, "ts": times, "usage": values},
    ),
    st.fixed_dictionaries(
        {"type": st.just("tool_result"), "id": ids, "call_id": texts},
        optional={"parent": ids, "result": values, "status": texts, "actor": actors, "ts": times},
    ),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(("event", "permission", "model_error", "end", "derived")),
            "id": ids,
        },
        optional={
            "parent": ids,
            "kind": texts,
            "text": texts,
            "call_id": texts,
            "decision": st.sampled_from(("denied", "asked", "\x1b")),
            "by": texts,
            "status": scalars,
            "name": texts,
            "value": values,
        },
    ),
)


def survey_of(objects):
    data = "".join(json.dumps(line) + "\n" for line in objects).encode()
    events = events_from(IMPORTER, "s.jsonl", data)
    index = index_of(events)
    row = SessionRow("s", "s", 1, "interchange", 1, len(events), "")
    opened = OpenedSession(row, index, MemoryReader(events), None, None)
    stamps = [NO_TS if event.ts_ns is None else event.ts_ns for event in events]
    return Survey(opened, build_places(index), stamps), events


def shown(survey):
    scan = EffectScan(survey)
    yield from effect_lines(scan.entries())
    yield from totals_lines(scan.totals())
    yield from timeline_lines(timeline_of(survey, survey.pair()))
    yield from actor_lines(actors_of(survey))
    yield from branch_lines(branches_of(survey))
    yield from step_lines(steps_of(survey, survey.opened.trajectory(), {}))


@settings(max_examples=100)
@given(st.lists(lines, max_size=8))
def test_any_recording_is_shown_and_escaped(objects):
    survey, events = survey_of([{"type": "session", "id": "s"}, *objects])
    for line in shown(survey):
        assert escape(line) == line
    for event in events:
        assert json.loads(dump_event(event))["seq"] == event.seq
        assert all(isinstance(text, str) for _, text in texts_of(event.kind, payload_of(event)))


def strings_of(value):
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in inner for text in strings_of(part)]


@given(values)
def test_every_string_of_a_value_can_be_found(value):
    found = [text for _, text in texts_in(value, "result")]
    missing = strings_of(value)
    for text in found:
        if text in missing:
            missing.remove(text)
    assert not missing
