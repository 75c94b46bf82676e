"""`redrive.record(…)` in this process, into a store of the test's own."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive.app.opening import open_session
from redrive.app.recorder_opening import new_session_id
from redrive.audit.closure import audit
from redrive.audit.report import AuditReport
from redrive.errors import StoreError, UsageError
from redrive.record.event import Kind, payload_of, raw_value
from redrive.stores.sqlite import open_store
from tests.loopback_server import Answer, LoopbackServer, run_server
from tests.recorded import asks, chat_answer

BODY = {"model": "m", "temperature": 0, "seed": 7, "messages": [{"role": "user", "content": "x"}]}


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with run_server() as fake:
        yield fake


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("REDRIVE_")]:
        if name != "REDRIVE_SAMPLES":
            monkeypatch.delenv(name)
    return tmp_path / "store.db"


def ask(session: Any, server: LoopbackServer, *texts: str) -> None:
    server.answers += [Answer((chat_answer(text),)) for text in texts]
    with session.http_client() as client:
        for _ in texts:
            client.post(f"{server.url}/v1/chat/completions", json=BODY)


def read_back(store: Path) -> tuple[Any, AuditReport]:
    opened = open_store(store, create=False)
    (row,) = opened.sessions()
    session = open_session(opened, row.session_id)
    report = audit(
        session.index,
        session.trajectory(),
        session.reader,
        session_started=session.started,
        renderers={},
    )
    return session, report


def test_an_agent_with_intercepted_reads_is_closed_on_the_recorder_s_own_word(store, server):
    with redrive.record("a", store=store, task="count", intercept=True) as session:
        ask(session, server, "7")
        assert time.time() > 0
        session.end("success")
    opened, report = read_back(store)
    assert report.is_closed
    assert report.steps[0].basis == "intercepted"
    assert (opened.started.task, opened.outcome) == ("count", "success")
    assert opened.row.session_id == session.id
    reads = opened.index.seqs_of(Kind.CLOCK_READ)
    assert [payload_of(e).name for e in opened.reader.read_events(reads)] == ["time.time"]


def test_without_interception_clock_and_dice_are_unknown(store, server):
    with redrive.record("a", store=store) as session:
        ask(session, server, "7")
    _, report = read_back(store)
    assert {gap.cause for gap in report.steps[0].missing} == {
        "clock_not_captured",
        "prng_not_captured",
    }


def test_what_the_developer_vouches_for_is_closed_on_that_word(store, server):
    with redrive.record("a", store=store, vouch=("clock", "prng")) as session:
        ask(session, server, "7")
    _, report = read_back(store)
    assert report.is_closed
    assert report.steps[0].basis == "vouched"


def test_interception_of_a_part_captures_what_it_covers(store, server):
    with redrive.record("a", store=store, intercept=("time", "datetime")) as session:
        ask(session, server, "7")
    _, report = read_back(store)
    assert {gap.cause for gap in report.steps[0].missing} == {"prng_not_captured"}


def test_the_environment_and_the_engine_stand_in_the_session(store, server):
    engine = {"fingerprint": "sha256:e", "n_threads": 1}
    options = {"engine": engine, "environment": {"region": "eu"}}
    with redrive.record("a", store=store, **options) as session:
        ask(session, server, "7")
    opened, _ = read_back(store)
    environment = raw_value(opened.started.environment)
    assert environment["engine"] == engine
    assert environment["region"] == "eu"
    assert {"python", "packages", "code"} <= environment.keys()
    (seq,) = opened.index.seqs_of(Kind.MODEL_RESPONSE)
    (response,) = opened.reader.read_events((seq,))
    assert payload_of(response).fingerprint == "sha256:e"


def test_an_agent_that_fails_has_failed_and_its_error_is_its_own(store):
    with pytest.raises(KeyError), redrive.record("a", store=store):
        raise KeyError("x")
    opened, _ = read_back(store)
    assert opened.outcome == "failure"


def test_an_agent_that_is_interrupted_has_not_failed(store):
    with pytest.raises(KeyboardInterrupt), redrive.record("a", store=store):
        raise KeyboardInterrupt
    opened, _ = read_back(store)
    assert opened.outcome is None


def test_a_tool_s_result_is_evidence_from_its_own_seam(store, server):
    with redrive.record("a", store=store, intercept=True) as session:
        server.answers = [Answer((chat_answer("", asks("c1", "look", '{"a": 1}')),))]
        look = session.tool(effect="unsafe")(lambda a: a + 1)
        named = session.tool(effect="unsafe", name="look")(lambda a: a + 1)
        with session.http_client() as client:
            client.post(f"{server.url}/v1/chat/completions", json=BODY)
        assert look is not named
        assert named(a=1) == 2
    opened, report = read_back(store)
    assert report.is_closed
    (seq,) = opened.index.seqs_of(Kind.TOOL_RESULT)
    (result,) = opened.reader.read_events((seq,))
    assert payload_of(result).seam == "tool"
    assert opened.started.tools["look"] == "unsafe"


def test_a_store_that_cannot_be_used_leaves_the_agent_running_and_is_told(store, server, capsys):
    store.write_bytes(b"something else, long enough to be no database")
    with redrive.record("a", store=store) as session:
        ask(session, server, "7")
    assert "NOTHING IS RECORDED" in capsys.readouterr().err
    assert store.read_bytes().startswith(b"something else")


def test_fail_closed_turns_that_round(store):
    store.write_bytes(b"something else, long enough to be no database")
    with pytest.raises(StoreError), redrive.record("a", store=store, fail_closed=True):
        raise AssertionError("the agent ran")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"decisions": "by_mail"}, "decisions is 'by_mail'"),
        ({"vouch": ("weather",)}, "vouch names 'weather'"),
        ({"intercept": ("weather",)}, "intercept names 'weather'"),
    ],
)
def test_an_option_that_is_none_is_refused_at_once(store, options, words):
    with pytest.raises(UsageError, match=words):
        redrive.record("a", store=store, **options)


def test_secrets_are_masked_at_write_where_that_is_asked(store, server, monkeypatch, tmp_path):
    monkeypatch.setenv("REDRIVE_REDACTION_KEY_FILE", str(tmp_path / "key"))
    secret = "sk-proj-4h8Jq2LmN6vX9pRtYb3Z"
    with redrive.record("a", store=store, redact_at_write=True) as session:
        ask(session, server, f"the key is {secret}")
    opened, _ = read_back(store)
    (seq,) = opened.index.seqs_of(Kind.MODEL_RESPONSE)
    (response,) = opened.reader.read_events((seq,))
    assert secret not in payload_of(response).text
    assert "[redacted:" in payload_of(response).text


def test_who_started_the_process_is_told_of_the_session(store, tmp_path, monkeypatch):
    monkeypatch.setenv("REDRIVE_RECORDED", str(tmp_path / "list"))
    monkeypatch.setenv("REDRIVE_PARENT_SESSION", "redrive:parent")
    monkeypatch.setenv("REDRIVE_ENGINE", json.dumps({"fingerprint": "sha256:p"}))
    with redrive.record("a", store=store) as session:
        pass
    assert (tmp_path / "list").read_text() == f"{session.id}\n"
    opened, _ = read_back(store)
    assert opened.started.thread == "redrive:parent"
    assert raw_value(opened.started.environment)["engine"] == {"fingerprint": "sha256:p"}


def test_what_another_process_says_in_odd_ways_is_passed_over(store, monkeypatch):
    monkeypatch.setenv("REDRIVE_RECORDED", "/nowhere/list")
    monkeypatch.setenv("REDRIVE_ENGINE", "no json")
    with redrive.record("a", store=store):
        pass
    opened, _ = read_back(store)
    assert not raw_value(opened.started.environment)["engine"]


def test_a_name_becomes_an_id_that_a_command_line_takes():
    assert new_session_id("my agent/7").startswith("redrive:my-agent-7-")
    assert new_session_id("//").startswith("redrive:agent-")


def test_the_package_stays_a_package_that_can_be_called():
    import redrive.record.event

    assert redrive.record.event.Kind.NOTE == "note"
    assert callable(redrive.record)


def test_with_a_provider_that_has_no_seed_the_seed_is_the_only_gap(store, server):
    import anthropic

    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [{"type": "text", "text": "7"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    server.answers = [Answer((json.dumps(message).encode(),))]
    with redrive.record("a", store=store, intercept=True) as session:
        options = {"http_client": session.http_client(), "max_retries": 0}
        with anthropic.Anthropic(api_key="k", base_url=server.url, **options) as client:
            client.messages.create(
                model="claude-x", max_tokens=8, messages=[{"role": "user", "content": "x"}]
            )
    _, report = read_back(store)
    assert [(gap.input_class, gap.what) for gap in report.steps[0].missing] == [
        ("sampling", "seed")
    ]


def test_without_a_key_that_stays_nothing_is_recorded_as_redacted(
    store, server, monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("REDRIVE_REDACTION_KEY_FILE", str(tmp_path))  # a folder
    with redrive.record("a", store=store, redact_at_write=True) as session:
        ask(session, server, "7")
    assert "NOTHING IS RECORDED" in capsys.readouterr().err
    assert not store.exists()
