"""The input of a task is what a recorded session was asked, whole, or the session is refused."""

import pytest
from msgspec import UNSET, Raw

from redrive.app.opening import OpenedSession
from redrive.app.session_tasks import FIRST_MESSAGE, STATED, read_session_task, task_of
from redrive.errors import UsageError
from redrive.record.event import FLAG_UNREPRESENTABLE, Kind, Redaction, UserMessage, raw_of
from redrive.record.session import MemoryReader
from redrive.stores.port import SessionRow
from tests.helpers_sessions import SessionBuilder


def user(line_id: str, text: object, **fields: object) -> dict[str, object]:
    return {"type": "event", "kind": "user", "id": line_id, "text": text, **fields}


def test_the_stated_task_comes_first(recorded, decision) -> None:
    store, row = recorded(
        {"type": "session", "id": "s", "task": "sort the mail", "environment": {"b": 1, "a": 2}},
        user("u", "something else"),
        decision("d", text="done"),
    )
    task = read_session_task(store, "s")
    assert (task.session_id, task.input, task.origin) == (row.session_id, "sort the mail", STATED)
    assert bytes(task.environment) == b'{"a":2,"b":1}'


def test_without_one_it_is_the_first_message_of_the_head_path(recorded, decision) -> None:
    store, _ = recorded(
        user("u1", "left behind", ts="2026-01-01T00:00:00Z"),
        decision("d1", parent="u1", text="no", ts="2026-01-01T00:00:01Z"),
        user("u2", "asked in the end", ts="2026-01-01T00:00:02Z"),
        decision("d2", parent="u2", text="yes", ts="2026-01-01T00:00:03Z"),
        user("u3", "and further", parent="d2", ts="2026-01-01T00:00:04Z"),
        decision("d3", parent="u3", text="yes", ts="2026-01-01T00:00:05Z"),
    )
    task = read_session_task(store, "s")
    assert (task.input, task.origin) == ("asked in the end", FIRST_MESSAGE)
    assert task.environment is UNSET


def test_an_environment_that_is_no_object_counts_as_not_recorded(recorded, decision) -> None:
    store, _ = recorded(
        {"type": "session", "id": "s", "task": "t", "environment": "linux"}, decision("d", text="x")
    )
    assert read_session_task(store, "s").environment is UNSET


REFUSED = [
    ([{"type": "session", "id": "s", "task": "read [REDACTED]"}], "its task is redacted: [REDACT"),
    ([{"type": "session", "id": "s", "task": "key xxxxxxxxxx"}], "its task is redacted"),
    ([{"type": "session", "id": "s"}, user("u", "mail ********")], "its task is redacted"),
    ([{"type": "session", "id": "s", "task": " "}], "what was asked is missing: no stated task"),
    ([{"type": "session", "id": "s"}], "what was asked is missing: no stated task and no user me"),
    (
        [{"type": "session", "id": "s"}, user("u", "go", parent="lost")],
        "what was asked is missing: its beginning is not recorded (broken_chain)",
    ),
]


@pytest.mark.parametrize(("lines", "message"), REFUSED)
def test_what_was_asked_must_be_there_and_whole(recorded, decision, lines, message) -> None:
    parent = {"parent": lines[-1]["id"]} if lines[-1]["type"] == "event" else {}
    store, row = recorded(*lines, decision("d", text="done", **parent))
    with pytest.raises(UsageError) as found:
        read_session_task(store, "s")
    assert found.value.message.startswith(row.session_id + ": ")
    assert message in found.value.message


def test_no_such_session_is_refused(recorded, decision) -> None:
    store, _ = recorded({"type": "session", "id": "s", "task": "t"}, decision("d", text="x"))
    with pytest.raises(UsageError):
        read_session_task(store, "absent")


def asked(message: UserMessage, *flags: str, **started: object) -> OpenedSession:
    """Open a session made by hand that begins with one message."""
    built = SessionBuilder(**{"task": None, **started})
    built.add(Kind.USER_MESSAGE, message, flags=flags)
    built.decision(text="done")
    row = SessionRow("s", "s", 1, "f", 1, len(built.events), "h")
    return OpenedSession(row, built.index(), MemoryReader(built.events), built.started, None)


def test_a_message_of_several_parts_is_kept_as_its_parts() -> None:
    parts = [{"type": "text", "text": "what is this?"}, {"type": "image", "data": "aGk="}]
    task = task_of(asked(UserMessage("what is this?", content=raw_of(parts))))
    assert (task.input, task.origin) == (parts, FIRST_MESSAGE)


MASKED = (Redaction("text", "email"),)


@pytest.mark.parametrize(
    ("session", "message"),
    [
        (asked(UserMessage("hi", redactions=MASKED)), "s: its task is redacted"),
        (asked(UserMessage("hi", raw_of(["hi"]), redactions=MASKED)), "s: its task is redacted"),
        (asked(UserMessage("hi", raw_of(["[REDACTED]"]))), "s: its task is redacted: [REDACTED]"),
        (asked(UserMessage("hi", Raw(b'["NaN"]')), FLAG_UNREPRESENTABLE), "no exact JSON form"),
        (asked(UserMessage(" ")), "s: its first user message is empty"),
        (asked(UserMessage("x"), task="t", redactions=(Redaction("task", "r"),)), "is redacted"),
    ],
)
def test_a_message_that_is_not_whole_is_refused(session: OpenedSession, message: str) -> None:
    with pytest.raises(UsageError) as found:
        task_of(session)
    assert message in found.value.message


def test_a_redaction_elsewhere_does_not_touch_the_task() -> None:
    session = asked(UserMessage("x"), task="t", redactions=(Redaction("environment.KEY", "r"),))
    assert task_of(session).input == "t"
