import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from redrive.record import event as ev
from redrive.record.event import Kind


def stored(kind, payload):
    """An event as a store gives it back."""
    made = ev.Event(
        id="a",
        session_id="s",
        seq=0,
        kind=kind,
        node_id="a",
        source=ev.Source("0" * 64, 0, 1),
        payload=ev.dump_payload(payload),
    )
    return msgspec.json.decode(msgspec.json.encode(made), type=ev.Event)


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_has_a_payload_that_survives_the_store(kind):
    struct = ev.payload_type(kind)
    required = {
        field.name: {
            "tool": "t",
            "decision": "asked",
            "name": "n",
            "label": "l",
            "policy": "p",
            "action": "a",
            "reason": "r",
            "line": 1,
            "offset": 2,
            "bytes": 3,
        }[field.name]
        for field in msgspec.structs.fields(struct)
        if field.required
    }
    payload = struct(**required)
    assert ev.payload_of(stored(kind, payload)) == payload


@given(st.text(), st.one_of(st.none(), st.integers(), st.text(), st.lists(st.text())))
def test_any_text_and_value_survives_the_store(text, value):
    payload = ev.ToolResult(result=ev.raw_of(value), tool=text)
    back = ev.payload_of(stored(Kind.TOOL_RESULT, payload))
    assert back.tool == text
    assert ev.raw_value(back.result) == value


def test_a_lone_surrogate_beside_raw_values_survives():
    payload = ev.Derived(
        name="\ud800", inputs=ev.raw_of([1, "\udfff"]), value=ev.raw_of({"a": 2**70})
    )
    back = ev.payload_of(stored(Kind.VALUE_DERIVED, payload))
    assert back.name == "\ud800"
    assert ev.raw_value(back.inputs) == [1, "\udfff"]
    assert ev.raw_value(back.value) == {"a": 2**70}
    assert back.function is None


@pytest.mark.parametrize("escape", [b"\\ud83d", b"\\uD83D"])
def test_a_lone_surrogate_in_raw_json_survives_in_either_case(escape):
    payload = ev.ToolResult(result=msgspec.Raw(b'["' + escape + b'"]'))
    back = ev.payload_of(stored(Kind.TOOL_RESULT, payload))
    assert ev.raw_value(back.result) == ["\ud83d"]


def test_absent_null_and_zero_differ():
    absent = ev.payload_of(stored(Kind.TOOL_RESULT, ev.ToolResult()))
    null = ev.payload_of(stored(Kind.TOOL_RESULT, ev.ToolResult(result=ev.raw_of(None))))
    assert ev.raw_value(absent.result) is UNSET
    assert ev.raw_value(null.result) is None
    seeded = ev.payload_of(
        stored(Kind.MODEL_REQUEST, ev.ModelRequest(sampling=ev.Sampling(seed=0)))
    )
    assert seeded.sampling.seed == 0
    assert seeded.sampling.temperature is None


def test_nan_never_becomes_null():
    with pytest.raises(ValueError, match="is not JSON"):
        ev.raw_of(math.nan)
    with pytest.raises(ValueError, match="is not JSON"):
        ev.dump_payload(ev.ModelError(delay_s=math.inf))


def test_a_payload_of_another_shape_is_a_value_error():
    broken = msgspec.structs.replace(
        stored(Kind.NOTE, ev.Note("x")), payload=msgspec.Raw(b'{"label":1}')
    )
    with pytest.raises(ValueError, match="label"):
        ev.payload_of(broken)


def test_evidence_beside_half_a_character_is_read_back_verbatim():
    evidence = b'{"a": 1.0,"a":1e400,"b":"\\ud83d"}'
    event = stored(Kind.TOOL_RESULT, ev.ToolResult("ok", result=msgspec.Raw(evidence)))
    assert bytes(event.payload).startswith(b'"')
    assert bytes(ev.payload_of(event).result) == evidence
