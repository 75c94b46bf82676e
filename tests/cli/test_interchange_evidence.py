"""Recorded values stay as they were written, from the file to the audit and the replay."""

import pytest

TWICE = '{"path": "a", "path": "b"}'
SESSION = (
    '{"type":"session","id":"twice","task":"t"}\n'
    '{"type":"decision","id":"d1","sampling":{"temperature":0,"seed":1},"context":"go",'
    '"output":{"text":"","tool_calls":[{"call_id":"c1","name":"look","args":' + TWICE + "}]}}\n"
    '{"type":"tool_result","id":"r1","parent":"d1","call_id":"c1","status":"ok","result":'
    '{"n": 1, "n": 2}}\n'
    '{"type":"decision","id":"d2","parent":"r1","sampling":{"temperature":0,"seed":1},'
    '"context":"go on","output":{"text":"done"}}\n'
    '{"type":"end","id":"e","parent":"d2","status":"success"}\n'
)


@pytest.fixture
def recorded(redrive, tmp_path):
    path = tmp_path / "twice.jsonl"
    path.write_text(SESSION)
    redrive.imported(path)
    return redrive


def shadow(recorded, tmp_path, arguments, *, code):
    script = tmp_path / "script.jsonl"
    script.write_text(
        '{"tool_calls":[{"name":"look","args_json":"' + arguments.replace('"', '\\"') + '"}]}\n'
        '{"text":"done","final":true}\n'
    )
    return recorded.json("shadow", "twice", "--model", f"script:{script}", code=code)


def test_the_audit_notes_keys_that_stand_twice(recorded):
    (session,) = recorded.json("audit", "twice")["sessions"]
    notes = [note for step in session["steps"] for note in step["notes"]]
    assert "duplicate keys in the arguments of c1" in notes
    assert "duplicate keys in the result c1" in notes


def test_arguments_with_a_key_that_stands_twice_match_only_the_same_text(recorded, tmp_path):
    same = shadow(recorded, tmp_path, TWICE, code=0)
    assert same["verdict"] == "IDENTICAL_REPLAY"
    for other in ('{"path": "b"}', '{"path": "b", "path": "a"}'):
        document = shadow(recorded, tmp_path, other, code=3)
        assert document["verdict"] == "INSUFFICIENT_EVIDENCE"
        assert document["runs"][0]["served"] == 0
