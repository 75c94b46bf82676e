import msgspec
import pytest
from msgspec import Raw

from redrive.record.event import Event, Kind, Source
from redrive.replay.persistent import Table
from redrive.replay.policy_state import OpenCall, StandardState, State, ToolRecord

RESULT = Event("e1", "s", 1, Kind.TOOL_RESULT, "n1", Source("", 0, 0), Raw(b"{}"), call_id="c2")


def test_a_result_is_told_the_call_that_it_answers():
    calls = (OpenCall("c1", "Read"), OpenCall("c2", "Bash", command="pytest"))
    state = State(StandardState(open_calls=calls))
    found = state.call_of(RESULT)
    assert found is not None
    assert (found.tool, found.command) == ("Bash", "pytest")
    assert state.call_of(msgspec.structs.replace(RESULT, call_id="c9")) is None


def test_a_tool_is_asked_for_by_its_name():
    state = State(StandardState(tools=Table().set("Bash", ToolRecord(3, 2, 1))))
    assert state.tool("Bash").errors == 2
    assert state.tool("Read") == ToolRecord()
    with pytest.raises(TypeError, match=r"see state\.call_of"):
        state.tool(None)
