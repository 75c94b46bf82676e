import dataclasses
import json

import msgspec
from msgspec import Raw

from redrive.app.effects import EffectScan


def scanned(survey):
    scan = EffectScan(survey)
    return list(scan.entries()), scan.totals()


def user(line_id, text, **fields):
    return {"type": "event", "id": line_id, "kind": "user", "text": text} | fields


def test_effects_come_in_order_of_time_over_all_paths_and_actors(surveyed, decision, result):
    entries, totals = scanned(
        surveyed(
            user("u1", "please", ts="2026-01-01T00:00:00Z"),
            decision("d1", ("Bash", {"command": "b"}), parent="u1", ts="2026-01-01T00:00:03Z"),
            decision("d2", ("Write", {"file_path": "w"}), parent="u1", ts="2026-01-01T00:00:09Z"),
            decision(
                "a1",
                ("WebFetch", {"url": "n"}),
                parent="d2",
                actor="sub",
                ts="2026-01-01T00:00:01Z",
            ),
            decision("d3", ("Read", {}), ("Odd", {"x": 1}), parent="d2", ts="2026-01-01T00:00:10Z"),
            result("d2.1", parent="d2", ts="2026-01-01T00:00:09Z"),
        )
    )
    assert [(e.what.text, e.actor, e.category, e.step, e.on_live_path) for e in entries] == [
        ("n", "sub", "network", 1, True),
        ("b", "main", "command", 1, False),
        ("w", "main", "file_write", 1, True),
        ('{"x": 1}', "main", "other", 2, True),
    ]
    assert entries[0].ts == "2026-01-01T00:00:01.000000000Z"
    assert [e.status for e in entries] == ["no result", "no result", "ok", "no result"]
    assert totals.by_category == {"command": 1, "file_write": 1, "network": 1, "other": 1}
    assert totals.not_live == 1
    assert totals.undeclared_tools == {"Odd": 1}
    assert totals.read_only_tools == {"Read": 1}


def test_what_asked_is_the_decisions_text_else_the_users(surveyed, decision):
    call = ("Bash", {"command": "x"})
    entries, _ = scanned(
        surveyed(
            user("u1", "clean up"),
            decision("d1", call, text="I will clean up"),
            decision("d2", call, call),
            decision("d3", call, actor="sub"),
        )
    )
    asked = [(e.asked_by.source, e.asked_by.text.text) for e in entries]
    assert asked == [("decision", "I will clean up"), *([("user", "clean up")] * 3)]


def test_the_last_message_of_a_node_asked_and_instructions_never_do(surveyed, tmp_path):
    message = {"role": "system", "content": "[system prompt]"}
    asked = [{"role": "user", "content": "hello"}, {"role": "user", "content": "save it"}]
    call = {"id": "c1", "function": {"name": "save", "arguments": "{}"}}
    attributes = {"openinference.span.kind": "LLM", "llm.model_name": "m"}
    for n, said in enumerate((message, *asked)):
        attributes |= {f"llm.input_messages.{n}.message.{k}": v for k, v in said.items()}
    answer = "llm.output_messages.0.message"
    attributes |= {
        f"{answer}.role": "assistant",
        f"{answer}.tool_calls.0.tool_call.id": call["id"],
        f"{answer}.tool_calls.0.tool_call.function.name": "save",
        f"{answer}.tool_calls.0.tool_call.function.arguments": "{}",
    }
    span = {
        "name": "llm",
        "context": {"trace_id": "0x" + "ab" * 16, "span_id": "0x" + "cd" * 8},
        "parent_id": None,
        "start_time": "2026-01-01T00:00:00Z",
        "end_time": "2026-01-01T00:00:01Z",
        "attributes": attributes,
    }
    path = tmp_path / "spans.jsonl"
    path.write_text(json.dumps(span) + "\n")
    ((entry,), _) = scanned(surveyed(path=path))
    assert (entry.asked_by.source, entry.asked_by.text.text) == ("user", "save it")


def test_a_message_of_another_role_asks_for_nothing_without_a_mark(surveyed, decision):
    survey = surveyed(
        user("u1", "clean up"), user("u2", "be kind"), decision("d1", ("Bash", {"command": "x"}))
    )

    class Reader:
        def read_events(self, seqs):
            for event in survey.opened.reader.read_events(seqs):
                if event.node_id == "u2":
                    payload = Raw(b'{"text":"be kind","role":"developer"}')
                    yield msgspec.structs.replace(event, payload=payload)
                else:
                    yield event

    opened = dataclasses.replace(survey.opened, reader=Reader())
    ((entry,), _) = scanned(dataclasses.replace(survey, opened=opened))
    assert entry.asked_by.text.text == "clean up"


def test_a_subagent_is_asked_by_the_agent_that_started_it(surveyed, decision):
    call = ("Bash", {"command": "x"})
    entries, _ = scanned(
        surveyed(
            user("u1", "tidy"),
            decision("d1", ("Task", {"prompt": "look"}), parent="u1"),
            user("p", "look", parent="d1", actor="sub"),
            decision("s1", call, parent="p", actor="sub"),
            decision("d2", call, parent="d1"),
        )
    )
    asked = {e.node_id: (e.asked_by.source, e.asked_by.text.text) for e in entries}
    assert asked == {"d1": ("user", "tidy"), "s1": ("agent", "look"), "d2": ("user", "tidy")}


def test_nothing_recorded_asked_where_nothing_is_recorded(surveyed, decision):
    ((entry,), _) = scanned(surveyed(decision("d1", ("Bash", {"command": "x"}))))
    assert entry.asked_by is None


def test_a_denied_call_shows_the_approval_and_did_not_run(surveyed, decision, result):
    entries, totals = scanned(
        surveyed(
            decision("d1", ("Bash", {"command": "rm -rf /"}), ("Bash", {"command": "ls"})),
            {"type": "permission", "id": "p1", "call_id": "d1.1", "decision": "denied", "by": "me"},
            result("d1.1", "no", status="error"),
            {"type": "permission", "id": "p2", "call_id": "d1.2", "decision": "allowed"},
            result("d1.2", {"exit_code": 0}),
            {"type": "permission", "id": "p3", "call_id": "gone", "decision": "asked"},
        )
    )
    told = [(e.category, e.tool, e.status, e.what.text, e.details) for e in entries]
    assert told == [
        ("command", "Bash", "denied", "rm -rf /", ()),
        ("command", "Bash", "ok", "ls", ()),
        ("approval", "Bash", "denied", "denied by me", ("rm -rf /",)),
        ("approval", "Bash", "allowed", "allowed", ("ls",)),
        ("approval", "", "asked", "asked", ()),
    ]
    assert entries[1].exit_code == 0
    assert (totals.denied, totals.failed) == (1, 0)


def test_a_refusal_that_only_the_result_tells_is_an_approval_too(surveyed, decision, result):
    entries, totals = scanned(
        surveyed(
            decision("d1", ("Bash", {"command": "x"})),
            result("d1.1", "exec command rejected by user", status="error"),
        )
    )
    assert [(e.category, e.status) for e in entries] == [
        ("command", "denied"),
        ("approval", "denied"),
    ]
    assert totals.denied == 1


def test_conflicting_results_are_no_outcome(surveyed, decision, result):
    entries, _ = scanned(
        surveyed(
            decision("d1", ("Bash", {"command": "x"})),
            result("d1.1", "a"),
            result("d1.1", "b", id="again"),
        )
    )
    assert [e.status for e in entries] == ["conflicting"]


def test_a_declared_tool_is_judged_by_its_declaration(surveyed, decision):
    entries, totals = scanned(
        surveyed(
            {"type": "session", "id": "s", "tools": {"look": "read_only", "pay": "unsafe"}},
            decision("d1", ("look", {}), ("pay", {"usd": 1})),
        )
    )
    assert [(e.tool, e.basis) for e in entries] == [("pay", "declared")]
    assert totals.undeclared_tools == {}


def test_a_call_that_repeats_an_id_gets_its_own_permission(surveyed, decision):
    ask = {"type": "permission", "call_id": "d1.1"}
    again = decision("d2", ("Bash", {"command": "second"}))
    again["output"]["tool_calls"][0]["call_id"] = "d1.1"
    entries, _ = scanned(
        surveyed(
            decision("d1", ("Bash", {"command": "first"})),
            ask | {"id": "p1", "decision": "denied"},
            again,
            ask | {"id": "p2", "decision": "allowed"},
        )
    )
    statuses = {e.what.text: e.status for e in entries if e.category == "command"}
    assert statuses == {"first": "denied", "second": "no result"}


def test_a_real_session_with_a_subagent_and_rewinds_tells_what_it_did(surveyed, samples):
    path = samples / "claude_code" / "entire-ext-ac-rewinds-progress.jsonl"
    entries, totals = scanned(surveyed(path=path))
    assert totals.by_category == {"command": 11, "file_write": 8, "other": 1}
    assert len({entry.actor for entry in entries}) == 2
    assert [entry.ts for entry in entries] == sorted(entry.ts for entry in entries)
    (commit,) = [entry for entry in entries if "git commit" in entry.writing_hints]
    assert (commit.asked_by.source, commit.asked_by.text.text) == ("user", "commit")
    assert all(entry.status == "ok" and entry.asked_by is not None for entry in entries)
