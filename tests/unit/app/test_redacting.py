"""Redaction of stored sessions: imported, grown, shared, recorded."""

import gzip
import json
from contextlib import contextmanager
from itertools import pairwise

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from redrive import canonical
from redrive.app.auditing import audit_session
from redrive.app.importing import import_paths
from redrive.app.opening import open_row
from redrive.app.redacting import redact_sessions
from redrive.app.trial_answers import dump_answer
from redrive.capture.exchanges import decode_content
from redrive.capture.ports import ServedAnswer
from redrive.errors import StoreError, UsageError
from redrive.record.event import Kind, payload_of
from redrive.replay.ledger import Finished, Graded, Settled, Started, Stopped, fold
from redrive.replay.trial_values import EpisodeEnd, Outcome
from redrive.reports.redact import MARK
from redrive.stores.port import HookRow, InferenceRow
from tests.planted_secrets import plant
from tests.planted_sessions import (
    SESSION,
    everything_in,
    leaks_in,
    record_planted,
    store_batches,
)
from tests.stored import opened
from tests.trials import entries, key, reserved, settled
from tests.trials import opened as trial_opened

SECRET = "sk-" + "proj-fakefakefakefakefake01"
PASSWORD = "Zq7" + "fakefake01xY"


@contextmanager
def nobody_records(base_id):
    yield base_id


def redact(store, *names, hold=nobody_records, is_dry_run=False):
    rows = [store.get_session(name) for name in names] or list(store.sessions())
    return redact_sessions(
        store,
        rows,
        b"k" * 32,
        decode=decode_content,
        hold=hold,
        is_dry_run=is_dry_run,
        progress=lambda *_: None,
    )


def take(store, path):
    return import_paths(store, [str(path)], progress=lambda *_: None)


def decision(number, text="x", **fields):
    output = {"text": text, "tool_calls": [{"call_id": f"c{number}", "name": "t", "args": {}}]}
    parent = f"r{number - 1}" if number > 1 else None
    return {"type": "decision", "id": f"d{number}", "parent": parent, "output": output} | {
        "context": f"[{number}]",
        "sampling": {"temperature": 0, "seed": 7},
        "model": {"requested": "m"},
        **fields,
    }


def result(number, value):
    line = {"type": "tool_result", "id": f"r{number}", "parent": f"d{number}", "name": "t"}
    return line | {"call_id": f"c{number}", "status": "ok", "result": value}


def write(path, *lines, name="s1"):
    rows = [{"type": "session", "id": name, "task": "t"}, *lines]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def store(path):
    with opened(path) as store:
        yield store


def holds(path, text):
    return any(text.encode() in part for part in everything_in(path))


def gaps_by_step(store, name):
    session = open_row(store, store.get_session(name))
    report, _ = audit_session(session, session.trajectory())
    return {step.step: {gap.cause for gap in step.missing} for step in report.steps}


LINES = (decision(1), result(1, f"key {SECRET} used"), decision(2), result(2, "fine"), decision(3))


# --- imported sessions
def test_an_imported_session_loses_its_secret_and_names_the_step(store, path, tmp_path):
    take(store, write(tmp_path / "a.jsonl", *LINES))
    before = gaps_by_step(store, "s1")
    assert holds(path, SECRET)
    row = store.get_session("s1")
    report = redact(store, "s1")
    assert not holds(path, SECRET)
    (session,) = report.sessions
    assert (session.old_head, session.head) == (row.head, store.get_session("s1").head)
    assert session.head != session.old_head
    assert (session.sources, session.bodies, session.events) == (1, 0, 1)
    assert [(rule.rule, rule.secrets, rule.places) for rule in session.rules] == [("openai", 1, 1)]
    after = gaps_by_step(store, "s1")
    assert {step for step in after if after[step] != before[step]} == {1}
    assert "masked_result" in after[1]
    assert [(step.actor, step.step) for step in session.steps] == [("main", 1)]
    assert store.verify().is_ok
    assert report.left == ""
    again = redact(store, "s1")
    assert (again.sessions[0].rules, again.sessions[0].head) == ((), session.head)


def test_each_event_still_points_at_its_own_line(store, tmp_path):
    take(store, write(tmp_path / "a.jsonl", *LINES))
    ids = [event.id for event in store.events("interchange:s1")]
    redact(store)
    with store.open_artefact(store.get_session("s1").sources[0][1]) as file:
        data = file.read()
    events = list(store.events("interchange:s1"))
    assert [event.id for event in events] == ids
    for event in events:
        line = json.loads(data[event.source.offset :][: event.source.length])
        assert line["id"] in (event.node_id, "s1")
    assert len(data.splitlines()) == len(LINES) + 1
    assert MARK.search(data.decode())


def test_a_session_without_a_secret_is_left_alone(store, path, tmp_path):
    take(store, write(tmp_path / "a.jsonl", decision(1), result(1, "fine")))
    before = path.read_bytes(), store.get_session("s1")
    report = redact(store)
    assert (path.read_bytes(), store.get_session("s1")) == before
    assert report.sessions[0].head == report.sessions[0].old_head


def test_a_dry_run_says_all_of_it_and_writes_nothing(store, path, tmp_path):
    take(store, write(tmp_path / "a.jsonl", *LINES))
    before = path.read_bytes(), list(store.events("interchange:s1"))
    dry = redact(store, is_dry_run=True)
    assert (path.read_bytes(), list(store.events("interchange:s1"))) == before
    assert dry.sessions[0].head is None
    real = redact(store)
    assert dry.sessions[0].rules == real.sessions[0].rules
    assert dry.sessions[0].steps == real.sessions[0].steps


def test_the_original_file_imported_again_is_a_new_revision(store, tmp_path):
    path = write(tmp_path / "a.jsonl", *LINES)
    take(store, path)
    redact(store)
    redacted = store.get_session("s1")
    (file,) = take(store, path).files
    assert [session.change for session in file.sessions] == ["new revision"]
    assert store.get_session("s1").session_id == "interchange:s1@2"
    assert store.get_row("interchange:s1") == redacted
    (shared,) = redact(store, "interchange:s1@2").sessions
    assert shared.rules
    assert store.verify().is_ok


def test_a_file_that_grew_is_redacted_in_all_its_states(store, path, tmp_path):
    file = write(tmp_path / "a.jsonl", *LINES[:2])
    torn = file.read_bytes()[:-9]
    file.write_bytes(torn)
    take(store, file)
    for count in (2, 3, 5):
        take(store, write(file, *LINES[:count]))
    assert len({event.source.artefact for event in store.events("interchange:s1")}) == 4
    redact(store)
    assert not holds(path, SECRET)
    assert store.verify().is_ok
    assert len({event.source.artefact for event in store.events("interchange:s1")}) == 1
    take(store, write(file, *LINES, result(3, "later")))
    assert store.get_session("s1").revision == 2


def test_a_state_without_the_secret_stays_for_who_else_has_it(store, path, tmp_path):
    begun = [decision(1), result(1, "fine")]
    rows = [{"type": "session", "id": "s1", "task": "t"}, *begun]
    take(store, write(tmp_path / "a.jsonl", *begun))
    early = store.get_session("s1").sources[0][1]
    # Another session that was read from the very bytes that the first one had at first.
    with store.transaction():
        writer = store.create("interchange:other", "interchange", 1)
        for event in store.events("interchange:s1"):
            writer.append(type(event)(**{**event_fields(event), "session_id": writer.session_id}))
        writer.close()
        (source,) = store.rewriting.list_sources("interchange:s1")
        store.add_source(type(source)(**{**event_fields(source), "session_id": writer.session_id}))
    take(store, write(tmp_path / "a.jsonl", *begun, decision(2, SECRET)))
    redact(store, "s1")
    assert not holds(path, SECRET)
    assert store.has_artefact(early)
    assert store.verify().is_ok
    assert len(rows) == 3


def event_fields(value):
    return {name: getattr(value, name) for name in value.__struct_fields__}


def test_what_an_importer_put_together_is_masked_in_its_line_too(store, path, tmp_path):
    """A secret that no rule finds in the line as it lies: the whole line gives way."""
    pieces = {"type": "event", "kind": "x", "id": "n", "pieces": [SECRET[:9], SECRET[9:]]}
    lines = [pieces, *LINES[2:3]]
    take(store, write(tmp_path / "a.jsonl", *lines))
    events = list(store.events("interchange:s1"))
    (noted,) = [event for event in events if event.kind is Kind.CUSTOM]
    with store.transaction():
        old = store.events("interchange:s1")
        writer = store.create("interchange:s1", "interchange", 1, replaces="interchange:s1")
        for event in old:
            if event.id == noted.id:
                payload = json.dumps({"name": "x", "data": {"text": SECRET}}).encode()
                event = type(event)(**{**event_fields(event), "payload": raw(payload)})
            writer.append(event)
        writer.close()
    redact(store)
    assert not holds(path, SECRET)
    assert not holds(path, SECRET[9:])
    with store.open_artefact(store.get_session("s1").sources[0][1]) as file:
        assert len(file.read().splitlines()) == 3
    assert store.verify().is_ok


def raw(data):
    from msgspec import Raw

    return Raw(data)


# --- what is shared
def test_a_source_of_two_sessions_is_redacted_for_both_or_not_at_all(store, path, tmp_path):
    take(store, write(tmp_path / "a.jsonl", *LINES))
    with store.transaction():
        writer = store.create("interchange:twin", "interchange", 1)
        for event in store.events("interchange:s1"):
            writer.append(type(event)(**{**event_fields(event), "session_id": writer.session_id}))
        writer.close()
        (source,) = store.rewriting.list_sources("interchange:s1")
        store.add_source(type(source)(**{**event_fields(source), "session_id": writer.session_id}))
    before = store.get_session("s1"), store.get_session("twin")
    with pytest.raises(
        UsageError, match=r"interchange:s1 shares .* with interchange:twin"
    ) as caught:
        redact(store, "s1")
    assert caught.value.hint.endswith("redrive redact interchange:s1 interchange:twin")
    assert (store.get_session("s1"), store.get_session("twin")) == before
    assert not store.rewriting.needs_cleaning
    assert store.verify().is_ok
    both = redact(store, "s1", "twin")
    assert [session.sources for session in both.sessions] == [1, 1]
    assert not holds(path, SECRET)
    assert store.verify().is_ok


def test_other_sessions_with_the_same_secret_are_named(store, path, tmp_path):
    take(store, write(tmp_path / "a.jsonl", *LINES))
    take(store, write(tmp_path / "b.jsonl", decision(1, f"say {SECRET}"), name="s2"))
    take(store, write(tmp_path / "c.jsonl", decision(1), name="s3"))
    report = redact(store, "s1", is_dry_run=True)
    assert report.also_in == ("interchange:s2",)
    assert redact(store, "s1").also_in == ("interchange:s2",)
    assert holds(path, SECRET)
    assert redact(store, "s2").also_in == ()
    assert not holds(path, SECRET)


def test_a_superseded_projection_goes_too(store, path, tmp_path):
    take(store, write(tmp_path / "a.jsonl", *LINES))
    with store.transaction():
        old = list(store.events("interchange:s1"))
        writer = store.create("interchange:s1", "interchange", 2, replaces="interchange:s1")
        for event in old:
            writer.append(event)
        writer.close()
    redact(store)
    assert not holds(path, SECRET)
    assert store.verify().is_ok


def test_what_is_stored_of_policies_loses_the_secret_too(store, path, tmp_path):
    take(store, write(tmp_path / "a.jsonl", *LINES))
    store.policies.put_inferences(
        [
            InferenceRow("k1", "mood", "local", json.dumps({"text": SECRET}), "null", "{}"),
            InferenceRow("k2", "mood", "local", '{"text":"fine"}', "null", "{}"),
            InferenceRow("k3", "mood", "local", f'{{"password":"{PASSWORD}"}}', "null", "{}"),
        ]
    )
    store.policies.add_hook_decision(
        HookRow(1, "p", "1", "d", "s", None, "e", "deny", f"it says {SECRET}", "x", False)
    )
    report = redact(store)
    assert not holds(path, SECRET)
    assert (report.policies.inferences, report.policies.hook_decisions) == (1, 1)
    assert [row.key for row in store.policies.inferences()] == ["k2", "k3"]
    assert store.verify().is_ok


def test_what_a_trial_kept_loses_the_secret_and_its_money_stays(store, path, tmp_path):
    take(store, write(tmp_path / "a.jsonl", *LINES))
    plain = json.dumps({"text": SECRET}).encode()
    packed = ServedAnswer(200, (("content-encoding", "gzip"),), gzip.compress(plain))
    served = [ServedAnswer(200, (), plain), packed, ServedAnswer(200, (), b"{}")]
    answers = [dump_answer(answer) for answer in served]
    names = [canonical.digest(answer) for answer in answers]
    archive, judged = b"tar " + SECRET.encode(), b"judged " + SECRET.encode()
    end = EpisodeEnd(
        Outcome.COMPLETE,
        Raw(json.dumps({"said": SECRET, "half": "\ud800"}).encode()),
        files_artefact=canonical.digest(archive),
    )
    facts = [trial_opened(), Started(key(), 1)]
    for number, name in enumerate(names):
        facts += [reserved(f"c{number}"), replace(settled(f"c{number}"), answer_sha256=name)]
    facts += [
        Finished(key(), end),
        Graded("task-1", "judge", Raw(json.dumps({"answer": canonical.digest(judged)}).encode())),
        Graded("task-2", "judge", Raw(json.dumps({"why": SECRET + "\ud800"}).encode())),
        Stopped(f"because {SECRET}"),
        Stopped("because"),
    ]
    kept = [*answers, archive, judged]
    document = json.dumps({"task": SECRET}).encode()
    store.trials.create("t", "d", document, 1)
    store.trials.append("t", entries(*facts), kept)
    before = fold(store.trials.entries("t"))
    report = redact(store)
    assert not holds(path, SECRET)
    assert store.verify().is_ok
    after = fold(store.trials.entries("t"))
    assert (after.budgets, after.n_entries) == (before.budgets, before.n_entries)
    ends = [run.end for run in after.runs.merged().values() if run.end is not None]
    assert [(one.outcome, one.files_artefact) for one in ends] == [(Outcome.COMPLETE, None)]
    facts = [entry.fact for entry in store.trials.entries("t")]
    assert [f.answer_sha256 for f in facts if isinstance(f, Settled)] == [None, None, names[2]]
    assert store.trials.get_answer(names[2]) == answers[2]
    assert msgspec.structs.astuple(report.trials) == (1, 5, 4)


# --- who else is there
def test_a_session_that_is_being_recorded_is_refused(store, path, tmp_path):
    take(store, write(tmp_path / "a.jsonl", *LINES))

    @contextmanager
    def recording(base_id):
        raise StoreError(f"session {base_id} is being recorded by process 7")
        yield

    before = path.read_bytes()
    with pytest.raises(StoreError, match="interchange:s1 is being recorded by process 7"):
        redact(store, hold=recording)
    assert path.read_bytes() == before


def test_a_redaction_that_left_old_bytes_is_finished_by_the_next(path, tmp_path):
    with opened(path, busy_timeout_ms=1) as store, opened(path) as reader:
        take(store, write(tmp_path / "a.jsonl", *LINES))
        reader._database.execute("BEGIN")
        reader._database.find("SELECT 1 FROM sessions")
        assert redact(store).left == "another process is reading the store"
        reader._database.execute("ROLLBACK")
        assert redact(store).left == ""
        assert not store.rewriting.needs_cleaning
    assert not holds(path, SECRET)


# --- recorded sessions
@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A store with a recorded session of planted secrets, and which they are."""
    planted = list(plant(14))[::16]
    path = tmp_path_factory.mktemp("recorded") / "store.db"
    store_batches(path, record_planted([one.text for one in planted]), size=200)
    return path, planted


def test_a_recorded_session_holds_no_secret_afterwards_not_even_in_pieces(recorded):
    path, planted = recorded
    assert len({leak[:2] for leak in leaks_in(path, planted)}) == len(planted)
    with opened(path) as store:
        report = redact(store)
        (session,) = report.sessions
        assert session.bodies
        assert store.verify().is_ok
        assert len(session.steps) == len(planted)
        assert all(step.opened for step in session.steps)
        closed = [step for step, gaps in gaps_by_step(store, SESSION).items() if not gaps]
        assert closed == []
        events = list(store.events(SESSION))
        requests = [payload_of(e) for e in events if e.kind is Kind.MODEL_REQUEST]
        assert all(json.loads(request.body)["seed"] in (7, 8) for request in requests)
        assert all(a.seq + 1 == b.seq for a, b in pairwise(events))
    assert leaks_in(path, planted) == []
