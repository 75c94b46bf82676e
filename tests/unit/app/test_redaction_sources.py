import hashlib

import pytest

from redrive.app.redaction_sources import Beginnings, Stretch, open_rewritten, rewrite_source
from redrive.reports.redact import Redactor
from tests.stored import opened, put_bytes

SECRET = b"sk-" + b"proj-fakefakefakefakefake01"
DATA = b'{"a":1}\n{"b":"' + SECRET + b'"}\n{"c":2}\n'


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("step", [1, 3, 7, 100])
def test_known_beginnings_of_a_stream_are_found_wherever_it_is_cut(step):
    found = Beginnings([8, 0, 20, len(DATA), 8, 999])
    parts = [DATA[n : n + step] for n in range(0, len(DATA), step)]
    assert b"".join(found.follow(parts)) == DATA
    assert found.digests == {sha256(DATA[:n]): n for n in (0, 8, 20, len(DATA))}


@pytest.fixture
def stored(tmp_path):
    with opened(tmp_path / "store.db") as store:
        with store.transaction():
            digest = put_bytes(store, DATA)
        yield store, digest


def rewritten(stored, told, known):
    store, digest = stored
    redactor = Redactor(b"k" * 32)
    made = rewrite_source(store, digest, redactor, told, known)
    with open_rewritten(store, digest, redactor, made) as stream:
        data = stream.read()
    assert (sha256(data), len(data)) == (made.digest, made.size)
    return made, data


def test_a_source_becomes_what_was_said_of_it(stored):
    early = sha256(DATA[:8])
    made, data = rewritten(stored, {}, {early: 8, "f" * 64: 9})
    assert dict(made.earlier) == {early: 8}
    assert SECRET not in data
    assert data.startswith(b'{"a":1}\n')
    assert data.endswith(b'\n{"c":2}\n')
    assert made.places.first_edit == DATA.index(SECRET)


def test_a_line_of_which_an_event_was_masked_gives_way_where_nothing_is_found_in_it(stored):
    marks = ("[redacted:openai:0123abcd]",)
    told = {
        stored[1]: [Stretch(8, 38, marks)],
        sha256(DATA[:8]): [Stretch(0, 7, marks)],
    }
    made, data = rewritten(stored, told, {sha256(DATA[:8]): 8})
    first, second, third = data.splitlines()
    assert first == b'{"redacted":{"bytes":8,"marks":["[redacted:openai:0123abcd]"]}}'
    assert second.startswith(b'{"b":"[redacted:')
    assert third == b'{"c":2}'
    assert [one.offset for one in made.forced] == [0]
