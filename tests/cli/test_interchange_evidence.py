"""Recorded values stay as they were written, from the file to the audit and the replay."""

import json
from pathlib import Path

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


# --- what is there and cannot be taken never passes for what was not recorded
PAGE = Path(__file__).resolve().parents[2] / "docs" / "interchange.md"


def base_lines():
    body = PAGE.read_text().partition("```jsonl\n")[2].partition("```")[0]
    return [json.loads(line) for line in body.splitlines()]


def edited(path, value):
    """Give the page's example with one value put at `LINE.KEY.KEY…`."""
    lines = base_lines()
    *keys, last = (int(key) if key.isdigit() else key for key in path.split("."))
    place = lines
    for key in keys:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return lines


def write(path, lines):
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(text + "\n" for text in texts))


def audited(redrive, tmp_path, lines):
    path = tmp_path / "run.jsonl"
    write(path, lines)
    redrive.imported(path, format_name="interchange")
    (session,) = redrive("audit", "all", "--json").document["sessions"]
    return session


def gaps(session):
    return {gap["class"] for step in session["steps"] for gap in step["missing"]}


def test_the_example_of_the_page_is_closed(redrive, tmp_path):
    assert audited(redrive, tmp_path, base_lines())["status"] == "closed"


# Path in the example → an odd value, and the class that it opens (none: no decision is left).
ODD = {
    "2.id": ({"n": 1}, "input"),
    "3.parent": (1.5, "input"),
    "4.actor": ([], None),
    "3.call_id": (True, "input"),
    "3.ts": (1767225600, "input"),
    "4.type": ("decision/2", None),
    "0.captures": ("all", "clock"),
    "0.tools": ([], "input"),
    "2.output": ([], "input"),
    "4.output": ({}, "input"),
    "4.output.text": (None, "input"),
    "2.output.text": (["x"], "input"),
    "2.output.tool_calls": ({}, "input"),
    "2.output.tool_calls.0": ("count_lines", "input"),
    "2.output.tool_calls.0.name": (None, "input"),
    "2.output.tool_calls.0.args_json": ({"path": "a"}, "input"),
    "2.output.tool_calls.0.args": ({"path": "b"}, "input"),
    "2.redactions": (True, "input"),
    "2.sampling.seed": ("7", "input"),
    "3.status": (["ok"], "environment"),
    "3.redactions": ("result", "environment"),
    "3.result_truncated": ("true", "environment"),
}


def test_one_odd_field_opens_a_closed_record(redrive, tmp_path):
    for number, (path, (value, _)) in enumerate(ODD.items()):
        lines = edited(path, value)
        lines[0]["id"] = f"odd-{number:02}"
        write(tmp_path / f"{number}.jsonl", lines)
    redrive.json("import", tmp_path)
    sessions = redrive("audit", "all", "--json").document["sessions"]
    found = {session["session_id"]: session for session in sessions}
    for number, (path, (_, input_class)) in enumerate(ODD.items()):
        session = found[f"interchange:odd-{number:02}"]
        assert session["status"] == "open", path
        assert input_class in gaps(session) or not session["steps"], path


def test_a_decision_without_output_opens_the_record(redrive, tmp_path):
    session = audited(redrive, tmp_path, edited("4.output", ...))
    causes = [gap["reason"] for step in session["steps"] for gap in step["missing"]]
    assert causes == ["neither a text nor a tool call of the answer is recorded"]


def test_integer_ids_are_as_good_as_texts(redrive, tmp_path):
    lines = base_lines()
    numbers = {line["id"]: n for n, line in enumerate(lines)}
    for line in lines[1:]:
        line["id"] = numbers[line["id"]]
        if "parent" in line:
            line["parent"] = numbers[line["parent"]]
    session = audited(redrive, tmp_path, lines)
    assert (session["status"], len(session["steps"])) == ("closed", 2)


@pytest.mark.parametrize("kind", ["clock", "prng"])
def test_a_masked_read_opens_its_class(redrive, tmp_path, kind):
    read = {"type": "read", "id": "k", "parent": "r1", "kind": kind, "name": "n", "value": 5}
    lines = base_lines()
    lines.insert(4, read | {"redactions": [{"path": "value", "rule": "key"}]})
    assert gaps(audited(redrive, tmp_path, lines)) == {kind}


def test_a_line_that_says_something_else_under_a_known_id_opens_the_record(redrive, tmp_path):
    lines = base_lines()
    lines.insert(4, lines[3] | {"result": 8})
    assert gaps(audited(redrive, tmp_path, lines)) == {"input"}
    lines[4] = lines[3]
    write(tmp_path / "run.jsonl", lines)
    assert redrive.imported(tmp_path / "run.jsonl")["damage"] == []


def test_a_second_session_line_opens_the_record(redrive, tmp_path):
    lines = base_lines()
    lines.append(lines[0] | {"captures": {"clock": "unknown"}})
    assert audited(redrive, tmp_path, lines)["status"] == "open"


def test_a_key_that_stands_twice_on_a_line_opens_its_step_and_is_damage_to_strict(
    redrive, tmp_path
):
    lines = base_lines()
    lines[3] = json.dumps(lines[3]).replace('"result": 7', '"result": 8, "result": 7')
    assert gaps(audited(redrive, tmp_path, lines)) == {"environment"}
    other = tmp_path / "other.jsonl"
    other.write_text((tmp_path / "run.jsonl").read_text().replace("run-17", "run-18"))
    document = redrive.json("import", "--strict", other, code=6)
    assert document["files"][0]["lost"] == ["line 4: field result stands twice"]


def test_a_result_is_served_digit_by_digit(redrive, tmp_path):
    number = "123456789012345678901234567890.50"
    lines = base_lines()
    lines[3] = json.dumps(lines[3]).replace('"result": 7', f'"result": {number}')
    assert audited(redrive, tmp_path, lines)["status"] == "closed"
    script = tmp_path / "script.jsonl"
    script.write_text(
        '{"text":"","tool_calls":[{"name":"count_lines","args":{"path":"a"}}]}\n'
        '{"text":"a has 7 lines.","final":true}\n'
    )
    done = redrive("shadow", "run-17", "--model", f"script:{script}", "--json")
    assert f'"result":{number}' in done.out.replace('"result": ', '"result":')


def test_a_decision_in_json_content_equals_no_other_text_of_its_number(redrive, tmp_path):
    lines = [
        {"type": "session", "id": "j", "task": "t", "decisions": "json_content"},
        {
            "type": "decision",
            "id": "d1",
            "context": "go",
            "sampling": {"temperature": 0, "seed": 1},
            "output": {"text": '{"tool":"look","arguments":{"a":1e999}}'},
        },
        {"type": "tool_result", "id": "r", "parent": "d1", "call_id": "d1", "result": 1},
        {
            "type": "decision",
            "id": "d2",
            "parent": "r",
            "context": "on",
            "sampling": {"temperature": 0, "seed": 1},
            "output": {"text": "done"},
        },
    ]
    assert audited(redrive, tmp_path, lines)["status"] == "closed"
    script = tmp_path / "script.jsonl"
    for number, code in (("1e999", 0), ('"1e999"', 3)):
        text = json.dumps(f'{{"tool":"look","arguments":{{"a":{number}}}}}')
        script.write_text(f'{{"text":{text}}}\n{{"text":"done","final":true}}\n')
        redrive.json("shadow", "j", "--model", f"script:{script}", code=code)
