import errno
import io
import json
import os
from pathlib import Path

import pytest

from redrive import plugins
from redrive.app import importing
from redrive.app.import_report import report_error, report_of
from redrive.app.importing import import_paths
from redrive.app.sources import FileSource, find_files
from redrive.errors import PluginError, UsageError
from redrive.record.event import Kind, payload_of
from redrive.stores.sqlite import open_store


def quiet(done, total, name):
    """A progress reporter that says nothing."""


@pytest.fixture
def store(tmp_path):
    opened = open_store(tmp_path / "store.db", create=True)
    yield opened
    opened.close()


def take(store, *paths, **fields):
    return import_paths(store, [str(path) for path in paths], progress=quiet, **fields)


def interchange(path, *extra, name="s1"):
    """Write a small session; `extra` lines follow."""
    lines = [
        {"type": "session", "id": name, "task": "t"},
        {
            "type": "decision",
            "id": "d1",
            "output": {"text": "x", "tool_calls": [{"call_id": "c1", "name": "t", "args": {}}]},
        },
        *extra,
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


RESULT = {"type": "tool_result", "id": "r1", "parent": "d1", "call_id": "c1", "result": 1}


def only_change(report):
    (file,) = report.files
    (session,) = file.sessions
    return session.change, session.events_added


def live_events(store, session_id):
    index = store.index(session_id)
    return [event for event in store.events(session_id) if index.is_live[event.seq]]


def test_the_same_file_twice_adds_nothing(store, tmp_path):
    path = interchange(tmp_path / "a.jsonl", RESULT)
    assert only_change(take(store, path)) == ("added", 5)
    before = store.get_session("s1")
    again = take(store, path)
    assert only_change(again) == ("unchanged", 0)
    assert store.get_session("s1") == before
    assert again.files[0].counts["tool_calls"] == 1
    copy = tmp_path / "elsewhere.jsonl"
    copy.write_bytes(path.read_bytes())
    assert only_change(take(store, copy)) == ("unchanged", 0)


def test_a_grown_file_appends_and_keeps_what_was_there(store, tmp_path):
    path = interchange(tmp_path / "a.jsonl")
    take(store, path)
    before = list(store.events("interchange:s1"))
    with path.open("a") as file:
        file.write(json.dumps(RESULT) + "\n")
    assert only_change(take(store, path)) == ("grown", 1)
    assert list(store.events("interchange:s1"))[: len(before)] == before
    row = store.get_session("s1")
    assert (row.revision, row.summary["complete"]) == (1, True)
    assert store.verify().is_ok


def test_a_torn_last_line_that_was_finished_later_supersedes_its_damage(store, tmp_path):
    path = interchange(tmp_path / "a.jsonl", RESULT)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert take(store, path).files[0].damage[0].line == 3
    path.write_bytes(whole + b'{"type":"end","id":"e","parent":"r1","status":"success"}\n')
    change, _ = only_change(take(store, path))
    assert change == "grown"
    kinds = [event.kind for event in live_events(store, "interchange:s1")]
    assert Kind.DAMAGE not in kinds
    assert kinds[-2:] == [Kind.SESSION_ENDED, Kind.NOTE]
    assert store.get_session("s1").summary["complete"]
    assert Kind.DAMAGE in [event.kind for event in store.events("interchange:s1")]


def test_growth_of_growth_supersedes_again(store, tmp_path):
    path = tmp_path / "a.jsonl"
    data = interchange(path, RESULT).read_bytes()
    for size in (len(data) - 30, len(data) - 10, len(data)):
        path.write_bytes(data[:size])
        take(store, path)
    assert store.get_session("s1").summary["complete"]
    results = [e for e in live_events(store, "interchange:s1") if e.kind is Kind.TOOL_RESULT]
    assert len(results) == 1


def test_an_older_copy_adds_nothing(store, tmp_path):
    path = interchange(tmp_path / "a.jsonl", RESULT)
    take(store, path)
    older = tmp_path / "older.jsonl"
    older.write_bytes(path.read_bytes()[: -len(json.dumps(RESULT)) - 1])
    assert only_change(take(store, older)) == ("older copy", 0)
    assert store.get_session("s1").revision == 1


def test_two_projects_with_the_same_id_never_merge(store, tmp_path):
    take(store, interchange(tmp_path / "a.jsonl", RESULT))
    other = interchange(tmp_path / "b.jsonl", RESULT | {"result": 2})
    assert only_change(take(store, other))[0] == "new revision"
    assert [row.session_id for row in store.sessions()] == ["interchange:s1", "interchange:s1@2"]
    assert store.get_session("s1").session_id == "interchange:s1@2"
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"type":"end","id":"e","status":"success"}\n')
    assert only_change(take(store, tmp_path / "a.jsonl"))[0] == "grown"
    assert store.get_session("interchange:s1@1").n_events == 6


def test_companions_join_in_any_order(store, samples):
    logs = samples / "otel_genai" / "gen-otlp-openai_v2-2.1b0-old.logs.json"
    traces = samples / "otel_genai" / "gen-otlp-openai_v2-2.1b0-old.traces.json"
    take(store, logs)
    assert only_change(take(store, traces))[0] == "joined"
    (row,) = store.sessions()
    counts = ("model_calls", "tool_calls", "tool_results", "orphan_calls", "orphan_results")
    assert [row.summary[name] for name in counts] == [3, 3, 3, 0, 0]
    assert only_change(take(store, logs))[0] == "unchanged"


def test_the_source_lies_verbatim_in_the_store(store, tmp_path):
    path = interchange(tmp_path / "a.jsonl", RESULT)
    take(store, path)
    with path.open("ab") as file:
        file.write(b'{"type":"end","id":"e"}\n{"torn')
    report = take(store, path)
    with store.open_artefact(report.files[0].sha256) as stored:
        assert stored.read() == path.read_bytes()
    for event in store.events("interchange:s1"):
        with store.open_artefact(event.source.artefact) as stored:
            stored.seek(event.source.offset) if stored.seekable() else stored.read(
                event.source.offset
            )
            assert stored.read(event.source.length).startswith(b"{")


def test_a_folder_is_walked_and_what_is_no_session_is_left_alone(store, tmp_path):
    (tmp_path / "in").mkdir()
    interchange(tmp_path / "in" / "a.jsonl")
    interchange(tmp_path / "in" / "b.jsonl", name="s2")
    (tmp_path / "in" / "readme.txt").write_text("hello")
    (tmp_path / "in" / "empty.jsonl").touch()
    os.symlink(tmp_path / "in" / "a.jsonl", tmp_path / "in" / "link.jsonl")
    report = take(store, tmp_path / "in")
    assert len(report.files) == 2
    assert [(Path(e.path).name, e.is_named) for e in report.refused] == [
        ("empty.jsonl", False),
        ("readme.txt", False),
    ]
    assert report_error(report) is None


def test_what_the_user_named_and_cannot_be_read_is_told(store, tmp_path):
    foreign = tmp_path / "foreign.bin"
    foreign.write_bytes(os.urandom(500))
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    good = interchange(tmp_path / "a.jsonl")
    report = take(store, foreign, good, empty)
    assert len(report.files) == 1
    assert [Path(entry.path).name for entry in report.refused] == ["foreign.bin", "empty.jsonl"]
    error = report_error(report)
    assert error is not None
    assert "no importer knows" in error.message


def test_a_forced_format_that_reads_nothing_is_an_error(store, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("no json at all\n")
    report = take(store, path, format_name="interchange")
    assert "nothing readable as interchange" in report.refused[0].reason
    assert list(store.sessions()) == []


def test_wrong_arguments_are_usage_errors(store, tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        take(store, tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no importer named 'nonsense'"):
        take(store, tmp_path, format_name="nonsense")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no session was found"):
        take(store, tmp_path / "empty")


def test_a_newer_importer_writes_a_new_projection(store, tmp_path, monkeypatch):
    from redrive.importers.interchange import InterchangeImporter

    path = interchange(tmp_path / "a.jsonl", RESULT)
    take(store, path)
    newer = InterchangeImporter.version + 1
    monkeypatch.setattr(InterchangeImporter, "version", newer)
    assert only_change(take(store, path))[0] == "projected anew"
    row = store.get_session("s1")
    assert (row.importer_version, row.n_events, row.revision) == (newer, 5, 1)
    assert store.verify().is_ok


def test_a_session_line_alone_is_a_session(store, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"type":"session","id":"only","task":"t"}\n')
    take(store, path)
    (event,) = store.events("interchange:only")
    assert payload_of(event).task == "t"


def test_progress_names_each_file(store, tmp_path):
    told = []
    path = interchange(tmp_path / "a.jsonl")
    import_paths(store, [str(path)], progress=lambda *args: told.append(args))
    assert told == [(0, 1, str(path)), (1, 1, "")]


def test_a_plugin_that_does_not_load_stops_only_who_asks_for_it(monkeypatch):
    from importlib.metadata import EntryPoint

    broken = EntryPoint("broken", "redrive.nowhere:X", plugins.IMPORTERS)
    real = plugins._points(plugins.IMPORTERS)
    monkeypatch.setattr(plugins, "_points", lambda group: (*real, broken))
    assert "interchange" in plugins.load_all(plugins.IMPORTERS)
    assert "broken" not in plugins.load_all(plugins.IMPORTERS)
    with pytest.raises(PluginError, match="broken"):
        plugins.load(plugins.IMPORTERS, "broken")
    assert [s.name for s in plugins.survey() if s.fault] == ["broken"] * len(plugins.GROUPS)


# --- what cannot be read, and what is no fact


def test_a_disk_that_fails_while_a_file_is_read_refuses_that_file(store, tmp_path, monkeypatch):
    interchange(tmp_path / "a.jsonl")
    interchange(tmp_path / "b.jsonl", name="s2")
    real = io.FileIO.read

    class Failing(io.FileIO):
        def read(self, size=-1):
            if Path(self.name).name == "a.jsonl":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(self, size)

    monkeypatch.setattr(Path, "open", lambda path, *_, **__: Failing(path))
    report = take(store, tmp_path)
    assert [Path(entry.path).name for entry in report.files] == ["b.jsonl"]
    (refused,) = [entry for entry in report.refused if entry.is_unreadable]
    assert refused.reason == f"{tmp_path / 'a.jsonl'}: cannot be read: Input/output error"
    assert report_error(report) is None
    assert report.has_damage


def test_a_folder_that_cannot_be_listed_is_told(store, tmp_path, monkeypatch):
    closed = tmp_path / "in" / "closed"
    closed.mkdir(parents=True)
    interchange(tmp_path / "in" / "a.jsonl")
    real = os.scandir

    def scandir(path):
        if Path(path) == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    report = take(store, tmp_path / "in")
    (refused,) = report.refused
    assert refused.reason == f"{closed}: cannot be read: Permission denied"
    assert (refused.is_named, refused.is_unreadable) == (False, True)
    assert report_error(report) is None
    report = take(store, closed)
    assert report.refused[0].is_named
    error = report_error(report)
    assert error is not None
    assert error.exit_code == 6


def test_where_nothing_was_imported_what_cannot_be_read_is_the_error(store, tmp_path):
    (tmp_path / "in").mkdir()
    text = interchange(tmp_path / "a.jsonl").read_text()
    (tmp_path / "in" / "wide.jsonl").write_text(text, encoding="utf-16")
    error = report_error(take(store, tmp_path / "in"))
    assert error is not None
    assert "UTF-16" in error.message
    assert error.hint


def test_a_recording_of_damage_alone_is_named_in_a_folder(store, tmp_path, cases):
    (tmp_path / "in").mkdir()
    whole = next((cases / "17-otlp-truncated-messages").glob("*.json*")).read_bytes()
    (tmp_path / "in" / "torn.json").write_bytes(whole[: len(whole) // 2].replace(b"\n", b" "))
    (refused,) = take(store, tmp_path / "in").refused
    assert refused.is_unreadable
    assert "nothing readable as otel_genai" in refused.reason


def test_notes_alone_are_no_session_and_a_session_line_is_one(store, tmp_path):
    summary = {"type": "summary", "summary": "x", "leafUuid": "y"}
    (tmp_path / "notes.jsonl").write_text(json.dumps(summary) + "\n")
    meta = {"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "c"}}
    (tmp_path / "rollout.jsonl").write_text(json.dumps(meta) + "\n")
    report = take(store, tmp_path / "notes.jsonl", tmp_path / "rollout.jsonl")
    assert [entry.sessions[0].session_id for entry in report.files] == ["codex:c"]
    assert "no message, call or result in it" in report.refused[0].reason


def span(trace, **attributes):
    items = [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()]
    return {"traceId": trace * 32, "spanId": trace * 16, "name": "s", "attributes": items}


def otlp(path, *spans):
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}))
    return path


MODEL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}


def test_a_trace_without_any_model_or_tool_is_counted_and_makes_no_session(store, tmp_path):
    path = otlp(tmp_path / "t.json", span("a", **MODEL), span("b", **{"http.method": "GET"}))
    (file,) = take(store, path).files
    assert [entry.session_id for entry in file.sessions] == ["otel_genai:" + "a" * 32]
    assert file.counts["extra"]["sessions_of_notes_alone"] == 1
    plain = otlp(tmp_path / "p.json", span("c", **{"http.method": "GET"}))
    assert take(store, plain).files == ()


def test_what_is_said_of_a_stored_session_joins_it_without_a_fact(store, tmp_path):
    take(store, otlp(tmp_path / "t.json", span("a", **MODEL)))
    more = tmp_path / "logs.json"
    record = {"traceId": "a" * 32, "spanId": "a" * 16, "body": {"stringValue": "x"}}
    more.write_text(json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}))
    assert only_change(take(store, more))[0] == "joined"


def test_a_file_of_many_notes_is_not_held_and_makes_no_session(store, tmp_path, monkeypatch):
    monkeypatch.setattr(importing, "_MAX_HELD", 3)
    summary = {"type": "summary", "summary": "x", "leafUuid": "y"}
    (tmp_path / "notes.jsonl").write_text((json.dumps(summary) + "\n") * 9)
    report = take(store, tmp_path / "notes.jsonl")
    assert "no message, call or result" in report.refused[0].reason
    assert list(store.sessions()) == []


def test_reports_are_given_file_by_file_and_what_is_left_is_counted(store, tmp_path):
    for name in ("a", "b", "c"):
        interchange(tmp_path / f"{name}.jsonl", name=name)
    found = find_files([str(tmp_path)])
    each = importing.import_each(store, found, progress=quiet)
    entries = [next(each)]
    assert [row.session_id for row in store.sessions()] == ["interchange:a"]
    report = report_of(found, entries)
    assert report.unfinished == len(found.files) - 1


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("09-rewind-dead-branch", "claude_code"),
        ("25-polled-identical-calls", "interchange"),
        ("17-otlp-truncated-messages", "otel_genai"),
        ("../golden/codex", "codex"),
    ],
)
def test_a_recording_is_claimed_and_a_page_that_shows_it_is_not(tmp_path, cases, case, name):
    recording = min((cases / case).glob("*.json*"), key=lambda p: (p.stem == "expected", p.name))
    known = plugins.load_all(plugins.IMPORTERS)
    found = importing.detect(FileSource(recording), known)
    assert found is not None
    assert found.name == name
    for opening in ("# A page\n\nIt shows:\n\n```json\n", "```json\n", "[![badge](x)](y)\n```\n"):
        page = tmp_path / "page.md"
        page.write_text(f"{opening}{recording.read_text()}```\n")
        assert importing.detect(FileSource(page), known) is None, opening


def test_an_unchanged_older_revision_is_reported_as_itself(store, tmp_path):
    first = interchange(tmp_path / "a.jsonl", RESULT)
    take(store, first)
    take(store, interchange(tmp_path / "b.jsonl", RESULT | {"result": 2}))
    (session,) = take(store, first).files[0].sessions
    assert (session.session_id, session.change) == ("interchange:s1", "unchanged")


def many_traces(n_traces):
    """An OTLP document with one model span per trace."""
    spans = [
        {
            "traceId": f"{number:032x}",
            "spanId": f"{number:016x}",
            "name": "chat m",
            "startTimeUnixNano": "1",
            "endTimeUnixNano": "2",
            "attributes": [
                {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                {"key": "gen_ai.request.model", "value": {"stringValue": "m"}},
            ],
        }
        for number in range(1, n_traces + 1)
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})


def test_a_file_of_many_sessions_is_noted_once(store, tmp_path):
    path = tmp_path / "traces.json"
    path.write_text(many_traces(40))
    assert len(take(store, path).files[0].sessions) == 40
    rows = store.sources_of(take(store, path).files[0].sha256)
    assert len(rows) == 40
    assert sum(bool(row.report) for row in rows) == 1
    again = take(store, path).files[0]
    assert {session.change for session in again.sessions} == {"unchanged"}
    assert again.counts["model_calls"] == 40


def test_a_file_that_grew_while_its_beginning_was_being_stored_is_no_revision(
    store, tmp_path, monkeypatch
):
    """Another process stores the beginning after this one looked and before it writes."""
    path = interchange(tmp_path / "a.jsonl", RESULT)
    begun = path.read_bytes()
    with path.open("a") as file:
        file.write('{"type":"end","id":"e","parent":"r1","status":"success"}\n')
    early = tmp_path / "early.jsonl"
    early.write_bytes(begun)
    real = store.transaction
    calls = []

    def late():
        calls.append(1)
        if len(calls) == 1:
            take(store, early)
        return real()

    monkeypatch.setattr(store, "transaction", late)
    assert only_change(take(store, path)) == ("grown", 1)
    assert [row.session_id for row in store.sessions()] == ["interchange:s1"]
