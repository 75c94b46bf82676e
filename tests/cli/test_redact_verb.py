"""`redrive redact`, as whole processes, on the planted corpus, imported and recorded."""

import json

import pytest

from redrive.capture.exchanges import decode_content
from redrive.reports.scrubber import Scrubber
from redrive.stores.recording_lock import hold_session
from tests.planted_secrets import plant
from tests.planted_sessions import SESSION, everything_in, leaks_in, record_planted, store_batches
from tests.schemas import check
from tests.stored import opened

SECRET = "sk-" + "proj-fakefakefakefakefake01"
PLANTED = list(plant())[::2]


@pytest.fixture(scope="module")
def batches():
    """A recorded session in which every planted text is met everywhere."""
    return record_planted([one.text for one in PLANTED])


def session_of(path, *texts):
    lines = [{"type": "session", "id": "s", "task": "t", "captures": {}}]
    for number, text in enumerate(texts, start=1):
        call = {"call_id": f"c{number}", "name": "shell", "args": {"command": text, text: 1}}
        lines += [
            {"type": "decision", "id": f"d{number}", "context": text}
            | {"sampling": {"temperature": 0, "seed": 7}, "model": {"requested": "m"}}
            | {"parent": f"r{number - 1}" if number > 1 else None}
            | {"output": {"text": text, "tool_calls": [call]}},
            {"type": "tool_result", "id": f"r{number}", "parent": f"d{number}", "name": "shell"}
            | {"call_id": f"c{number}", "status": "ok", "result": {"out": text}},
        ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_corpus_is_as_large_as_is_promised():
    assert len(PLANTED) >= 200
    assert len({one.shape for one in PLANTED}) >= 30
    assert len({one.spelling for one in PLANTED}) >= 6


def test_no_planted_secret_is_stored_where_it_is_scrubbed_at_write(tmp_path, batches):
    scrub = Scrubber(b"k" * 32, decode_content)
    store_batches(tmp_path / "store.db", batches, scrub, size=1000)
    with opened(tmp_path / "store.db") as store:
        assert store.verify().is_ok
        assert len(list(store.events(SESSION))) == len(batches.events)
    assert leaks_in(tmp_path / "store.db", PLANTED) == []


def test_without_it_every_planted_secret_would_be_found(tmp_path, batches):
    """The control: the search can fail, for each of them."""
    store_batches(tmp_path / "store.db", batches, size=1000)
    found = {leak[:2] for leak in leaks_in(tmp_path / "store.db", PLANTED)}
    assert found == {(one.shape, one.spelling) for one in PLANTED}


def test_a_secret_left_in_the_pieces_of_a_stream_would_be_found(tmp_path):
    """The control of the search in pieces: a stored answer that was cut into small ones."""
    planted = next(one for one in PLANTED if (one.shape, one.spelling) == ("github", "plain"))
    batches = record_planted([planted.text] * 2)
    stream = next(data for data in batches.artefacts if data.startswith(b"event:"))
    assert planted.secret[:9].encode() not in stream
    batches.batches = [([], [stream])]
    store_batches(tmp_path / "store.db", batches)
    assert leaks_in(tmp_path / "store.db", [planted])


def test_no_planted_secret_is_left_in_a_recorded_session(redrive, batches):
    store_batches(redrive.store, batches, size=1000)
    document = check(redrive.json("redact", SESSION), "redact")
    (session,) = document["sessions"]
    assert session["bodies"] > 200
    assert len(session["steps"]) == len(PLANTED)
    assert document["left"] == ""
    assert leaks_in(redrive.store, PLANTED) == []
    assert redrive("verify").code == 0
    head = redrive("verify", "--head", session["old_head"])
    assert head.code == 7
    assert redrive("verify", "--head", session["head"]).code == 0


def test_no_planted_secret_is_left_in_an_imported_session(redrive, tmp_path):
    redrive.imported(session_of(tmp_path / "a.jsonl", *(one.text for one in PLANTED)))
    assert {leak[0] for leak in leaks_in(redrive.store, PLANTED)} == {p.shape for p in PLANTED}
    (session,) = check(redrive.json("redact", "s"), "redact")["sessions"]
    assert leaks_in(redrive.store, PLANTED) == []
    assert redrive("verify").code == 0
    audit = redrive.json("audit", "s", code=3)["sessions"][0]
    assert {step["step"] for step in audit["steps"]} == {step["step"] for step in session["steps"]}
    again = redrive.imported(tmp_path / "a.jsonl")["sessions"][0]
    assert (again["change"], again["session_id"]) == ("new revision", "interchange:s@2")


def test_a_dry_run_says_what_would_be_done_and_does_nothing(redrive, tmp_path):
    redrive.imported(session_of(tmp_path / "a.jsonl", f"key {SECRET}"))
    before = redrive.store.read_bytes()
    dry = redrive("redact", "s", "--dry-run")
    assert redrive.store.read_bytes() == before
    assert "1 secret would be masked" in dry.out
    assert "by the rule openai" in dry.out
    check(redrive.json("redact", "s", "--dry-run"), "redact")
    done = redrive("redact", "all")
    assert "a redacted session has another head" in done.out
    assert "1 step opened" in done.out
    assert SECRET not in dry.out + done.out
    assert redrive("redact", "s").out == "interchange:s: no secret found\n"


def test_equal_secrets_match_each_other_in_the_store_and_in_outputs(redrive, tmp_path):
    redrive.imported(session_of(tmp_path / "a.jsonl", f"key {SECRET}", f"again {SECRET}"))
    shown = redrive("cat", "s").out
    redrive("redact", "s")
    stored = b"".join(everything_in(redrive.store)).decode("utf-8", "replace")
    mark = "[redacted:openai:"
    digests = {text.partition(mark)[2][:8] for text in (shown, stored)}
    assert len(digests) == 1
    assert stored.count(mark + digests.pop()) > 4


def test_who_records_a_session_is_named_and_it_is_left_alone(redrive, batches):
    store_batches(redrive.store, batches, size=10_000)
    before = redrive.store.read_bytes()
    lock = hold_session(redrive.store, SESSION)
    try:
        refused = redrive("redact", SESSION)
    finally:
        lock.release()
    assert refused.code == 6
    assert f"session {SESSION} is being recorded by process " in refused.err
    assert redrive.store.read_bytes() == before


def test_a_store_that_is_locked_is_refused_and_left_as_it_was(redrive, tmp_path):
    redrive.imported(session_of(tmp_path / "a.jsonl", f"key {SECRET}"))
    with opened(redrive.store) as other, other.transaction():
        refused = redrive("redact", "s")
    assert refused.code == 6
    assert "locked by another process" in refused.err
    assert redrive("redact", "s").code == 0


def test_a_reader_keeps_old_bytes_alive_and_it_is_said(redrive, tmp_path):
    redrive.imported(session_of(tmp_path / "a.jsonl", f"key {SECRET}"))
    with opened(redrive.store) as other:
        other._database.execute("BEGIN")
        other._database.find("SELECT 1 FROM sessions")
        told = redrive("redact", "s")
        assert told.code == 6
        assert "NOT CLEAN" in told.out
        other._database.execute("ROLLBACK")
    assert redrive("redact", "s").code == 0
    assert not any(SECRET.encode() in part for part in everything_in(redrive.store))


def test_marks_that_stay_need_a_key_that_stays(redrive, tmp_path):
    redrive.imported(session_of(tmp_path / "a.jsonl", f"key {SECRET}"))
    (tmp_path / "file").write_text("")
    broken = {"REDRIVE_REDACTION_KEY_FILE": str(tmp_path / "file" / "key")}
    refused = redrive("redact", "s", **broken)
    assert refused.code == 6
    assert any(SECRET.encode() in part for part in everything_in(redrive.store))


def test_a_session_that_is_unknown_is_refused(redrive, tmp_path):
    redrive.imported(session_of(tmp_path / "a.jsonl", "x"))
    assert check(redrive.json("redact", "nobody", code=2), "error")["error"]["code"] == 2
    assert redrive("redact").code == 2


def test_clean_sessions_hardly_lose_a_word(redrive, cases):
    """At most one false mark per thousand events; what is found here today is none at all."""
    clean = [folder for folder in sorted(cases.iterdir()) if folder.name[:2] not in ("28", "IN")]
    redrive("import", *clean)
    document = redrive.json("redact", "all", "--dry-run")
    with opened(redrive.store) as store:
        n_events = sum(row.n_events for row in store.sessions())
    places = sum(rule["places"] for one in document["sessions"] for rule in one["rules"])
    assert n_events > 300
    assert places <= n_events / 1000
