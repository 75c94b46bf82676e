import io
import json
import sys

import pytest

from redrive.cli import output


class Terminal(io.TextIOWrapper):
    """A stand-in for stdout that may say it is a terminal."""

    is_terminal = False

    def isatty(self):
        return self.is_terminal


@pytest.fixture
def redirect(monkeypatch):
    """Put a stream in stdout's place; called in the test, since pytest sets its own before."""

    def put(*, is_terminal=False):
        stream = Terminal(io.BytesIO(), encoding="utf-8")
        stream.is_terminal = is_terminal
        monkeypatch.setattr(sys, "stdout", stream)
        return stream

    return put


def written(stream):
    return stream.buffer.getvalue()


def test_a_document_is_written_field_by_field(redirect):
    stdout = redirect()
    seen = []

    def items():
        seen.append(written(stdout))
        yield {"x": 1}
        yield b'{"raw":true}'

    def fields():
        yield "schema", "s"
        yield "items", items()
        yield "none", iter(())
        yield "count", len(seen)

    output.write_document(fields())
    assert seen == [b'{"schema":"s","items":']
    assert json.loads(written(stdout)) == {
        "schema": "s",
        "items": [{"x": 1}, {"raw": True}],
        "none": [],
        "count": 1,
    }


def test_an_empty_document_is_an_object(redirect):
    stdout = redirect()
    output.write_document(())
    assert written(stdout) == b"{}\n"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_json_on_a_terminal_holds_nothing_that_it_obeys(redirect, is_terminal):
    stdout = redirect(is_terminal=is_terminal)
    value = {"a": "\x9b\u202e\x1b"}
    output.write_json(value)
    output.write_json_lines([json.dumps(value, ensure_ascii=False).encode()])
    for line in written(stdout).splitlines():
        assert json.loads(line) == value
    assert ("\u202e" in written(stdout).decode()) is not is_terminal


def test_bytes_are_written_as_they_are(redirect):
    stdout = redirect()
    output.write_bytes([b"\x00\xff", b"\n"])
    assert written(stdout) == b"\x00\xff\n"


@pytest.mark.parametrize(
    ("done", "elapsed_s", "said"),
    [
        (0, 9.0, ""),
        (3, 1.0, ""),
        (10, 9.0, ""),
        (2, 5.0, ", about 20 s left"),
        (1, 10.0, ", about 1 min 30 s left"),
    ],
)
def test_the_time_left_is_told_once_there_is_a_pace(done, elapsed_s, said):
    assert output.time_left(done, 10, elapsed_s) == said


def test_an_address_of_ours_keeps_its_token_and_other_lines_do_not(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(written, write_through=True))
    line = "label at http://127.0.0.1:8771/?token=Zk3vQ0c9S1x7Lw2RbT5nYh8P"
    output.say_address(line)
    output.say(line)
    first, second = written.getvalue().decode().splitlines()
    assert first == line
    assert "Zk3vQ0c9" not in second
