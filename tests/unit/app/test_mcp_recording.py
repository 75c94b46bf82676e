from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from redrive.app.mcp_recording import McpRecording, recorded_mcp
from redrive.app.recorder_opening import RecorderOptions
from redrive.capture.remote import RemoteBackend
from redrive.errors import RerunStopped, StoreError, UsageError
from redrive.record.event import Kind, payload_of
from redrive.stores.sqlite import open_store

NOWHERE = "http://127.0.0.1:9/TOKEN/redrive"


def never() -> Path:
    raise AssertionError("the store is not asked for")


def at(path: Path) -> Callable[[], Path]:
    return lambda: path


def call(reporter: Any, *, is_unsafe: bool = True) -> Any:
    return reporter.begin_call("a", "unsafe", Raw(b"{}"), is_unsafe=is_unsafe, seam="mcp")


def test_without_a_recorder_a_session_of_its_own_is_written(tmp_path: Path):
    said: list[str] = []
    recording = McpRecording("my files/é", {"read": "pure"})
    with recorded_mcp(
        recording, {"REDRIVE_RECORDER": ""}, at(tmp_path / "s.db"), said.append
    ) as to:
        call(to.reporter).returned(Raw(b"1"))
        to.end("exit code 0")
    assert to.session_id.startswith("redrive:mcp-my-files-2")
    store = open_store(tmp_path / "s.db", create=False)
    events = list(store.reader(to.session_id).read_events(range(4)))
    store.close()
    started, *_, ended = events
    assert payload_of(started).tools == {"my files/é__read": "pure"}
    assert payload_of(started).agent == "mcp:my files/é"
    assert (ended.kind, payload_of(ended).status) == (Kind.SESSION_ENDED, "exit code 0")
    assert said == []


def test_a_recorder_that_runs_is_told_and_the_store_is_not_touched():
    with recorded_mcp(
        McpRecording("files"), {"REDRIVE_RECORDER": NOWHERE}, never, lambda _: None
    ) as to:
        assert isinstance(to.reporter, RemoteBackend)
        to.end("exit code 0")
    assert to.session_id == ""


def test_a_recorder_that_is_gone_is_said_once_and_the_agent_goes_on():
    said: list[str] = []
    with recorded_mcp(
        McpRecording("files"), {"REDRIVE_RECORDER": NOWHERE}, never, said.append
    ) as to:
        assert not to.reporter.is_serving
        call(to.reporter).returned(Raw(b"1"))
        to.reporter.note("mcp.closed", {})
    assert len(said) == 1
    assert "the recorder is lost" in said[0]


def test_a_rerun_that_is_gone_stops_the_agent():
    environment = {"REDRIVE_RERUN": NOWHERE, "REDRIVE_RECORDER": NOWHERE}
    recording = McpRecording("files")
    with (
        pytest.raises(RerunStopped),
        recorded_mcp(recording, environment, never, lambda _: None) as to,
    ):
        call(to.reporter)


@pytest.mark.parametrize("environment", [{}, {"REDRIVE_RECORDER": "ftp://recorder"}])
def test_where_nothing_can_be_kept_messages_pass_unless_they_must_not(
    environment: dict[str, str], tmp_path: Path
):
    said: list[str] = []
    taken = tmp_path / "taken"
    taken.write_bytes(b"no store")
    with recorded_mcp(McpRecording("files"), environment, at(taken), said.append) as to:
        call(to.reporter).returned(Raw(b"1"))
        call(to.reporter).returned_unknown("X")
        call(to.reporter).raised("X", "y")
        to.reporter.note("mcp.closed", {})
        to.end("exit code 0")
    assert len(said) == 1
    assert said[0].startswith("not recorded: ")
    closed = McpRecording("files", recorder=RecorderOptions(is_fail_closed=True))
    with (
        pytest.raises((StoreError, UsageError)),
        recorded_mcp(closed, environment, at(taken), said.append),
    ):
        raise AssertionError("nothing runs")
