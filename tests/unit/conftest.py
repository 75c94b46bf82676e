"""What tests of the reports share: a recording written in place, stored and surveyed."""

import json

import pytest

from redrive.app.importing import import_paths
from redrive.app.survey import survey_session
from redrive.stores.sqlite import open_store


@pytest.fixture
def recorded(tmp_path):
    """Store lines of the interchange format, or a file of another; give (store, row)."""
    store = open_store(tmp_path / "recorded.db", create=True)

    def take(*lines, path=None, name="s"):
        if path is None:
            path = tmp_path / f"{name}.jsonl"
            head = {"type": "session", "id": name}
            objects = lines if lines[0]["type"] == "session" else (head, *lines)
            path.write_text("".join(json.dumps(line) + "\n" for line in objects))
        report = import_paths(store, [str(path)], progress=lambda *_: None)
        (session,) = report.files[0].sessions
        return store, store.get_session(session.session_id)

    yield take
    store.close()


@pytest.fixture
def surveyed(recorded):
    """Store lines and survey the session."""
    return lambda *lines, **where: survey_session(*recorded(*lines, **where))


@pytest.fixture
def decision():
    """Write a decision line: its id, its calls as (tool, arguments), and further fields."""

    def write(line_id, *calls, text="", **fields):
        asked = [
            {"call_id": f"{line_id}.{n}", "name": tool, **_given(args)}
            for n, (tool, args) in enumerate(calls, 1)
        ]
        return {"type": "decision", "id": line_id, **fields} | {
            "output": {"text": text, "tool_calls": asked}
        }

    return write


def _given(args):
    if args is None:
        return {}
    return {"args_json": args} if isinstance(args, str) else {"args": args}


@pytest.fixture
def result():
    """Write a result line for a call id."""

    def write(call_id, value="ok", **fields):
        line = {"type": "tool_result", "id": f"r{call_id}", "call_id": call_id, "status": "ok"}
        return line | {"result": value} | fields

    return write
