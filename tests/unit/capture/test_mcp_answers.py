import json
from typing import Any

import pytest
from msgspec import UNSET, Raw

from redrive.capture.mcp_answers import answer_served, join, refuse
from redrive.capture.ports import ServedResult

ID = ("number", 7, "")


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        (ServedResult(Raw(b'{"isError": true}')), {"result": {"isError": True}}),
        (
            ServedResult(error=("JSON-RPC error -32602", "Unknown")),
            {"error": {"code": -32602, "message": "Unknown"}},
        ),
        (
            ServedResult(error=("ConnectionClosed", "gone")),
            {"error": {"code": -32000, "message": "gone"}},
        ),
        (ServedResult(error=("HTTP error", "500")), {"error": {"code": -32603, "message": "500"}}),
        (
            ServedResult(error=("JSON-RPC error ?", "x")),
            {"error": {"code": -32603, "message": "x"}},
        ),
    ],
)
def test_a_call_ends_as_it_was_recorded(served: ServedResult, expected: dict[str, Any]):
    assert json.loads(answer_served(ID, served)) == {"jsonrpc": "2.0", "id": 7} | expected


def test_a_call_that_was_cancelled_is_not_answered():
    assert answer_served(ID, ServedResult(error=("Cancelled", "too long"))) == b""


def test_a_result_that_was_not_recorded_is_an_error():
    told = json.loads(answer_served(ID, ServedResult(UNSET)))
    assert "no form" in told["error"]["message"]


def test_several_answers_are_a_batch():
    one = refuse(("text", "a", ""), "no")
    assert join([]) == b""
    assert join([one]) == one
    assert json.loads(join([one, one])) == [json.loads(one)] * 2
