"""Secrets that were found once are found wherever they stand."""

import pytest

from redrive.reports.redact import MARK, Redactor
from redrive.reports.redact_known import KnownSecrets

SECRET = "Zq7" + "fakefake01xY"
OTHERS = [f"k{n}Fake-{n}fake{n}Zz" for n in range(20)]


@pytest.fixture
def known():
    return KnownSecrets()


def test_a_password_is_found_alone_after_it_was_found_behind_its_name(known):
    redactor = Redactor(b"k" * 32, known)
    assert redactor.text(f"the word {SECRET} alone") == f"the word {SECRET} alone"
    named = redactor.text(f"DB_PASSWORD={SECRET}")
    alone = redactor.text(f"the word {SECRET} alone")
    assert MARK.findall(named) == MARK.findall(alone) != []
    assert redactor.json(f'["a{SECRET}b"]'.encode()) != f'["a{SECRET}b"]'.encode()


def test_without_a_memory_each_text_stands_for_itself():
    redactor = Redactor(b"k" * 32)
    redactor.text(f"DB_PASSWORD={SECRET}")
    assert redactor.text(f"the word {SECRET} alone") == f"the word {SECRET} alone"


@pytest.mark.parametrize("count", [1, 20])
def test_spelled_by_escapes_it_is_found_too(known, count):
    for secret in OTHERS[: count - 1]:
        known.learn("field", secret)
    known.learn("field", SECRET)
    redactor = Redactor(b"k" * 32, known)
    url = "".join(f"%{ord(char):02X}" for char in SECRET)
    escaped = "".join(f"\\u{ord(char):04x}" for char in SECRET)
    for data in (f'["{url}"]', f'["{escaped}"]', f'["x {SECRET}"]'):
        assert SECRET not in redactor.json(data.encode()).decode()
        assert len(MARK.findall(redactor.json(data.encode()).decode())) == 1


def test_the_rule_that_found_it_first_names_all_its_marks(known):
    assert known.learn("openai", SECRET) == "openai"
    assert known.learn("field", SECRET) == "openai"


@pytest.mark.parametrize(
    "plain",
    ["hunter2", "password", "production", "12345678", "two words 12", "aaaaaaaa1", "x" * 20000],
)
def test_what_stands_for_other_things_as_well_is_not_looked_for(known, plain):
    known.learn("field", plain)
    assert known.secrets == {}
    assert not known.may_be_in(plain.encode(), known.needles_in(plain.encode()))
    assert not known.is_in(plain.encode())


def test_a_secret_whose_prefix_tells_what_it_is_needs_no_digits(known):
    known.learn("openai", "sk-" + "proj-words-and-words")
    known.learn("openai", "sk-" + "proj-w")
    assert list(known.secrets) == ["sk-" + "proj-words-and-words"]


def test_the_lines_of_a_private_key_are_known_without_their_frame(known):
    line = "MIIEfake0fake1fake2fake3fake4fake5fake6fake7"
    known.learn("private-key", f"-----BEGIN X-----\n{line}\n-----END X-----")
    assert list(known.secrets) == [line]


def test_a_secret_is_told_in_bytes_as_json_writes_it(known):
    known.learn("field", 'a1"b2\\c3?d4')
    assert known.is_in(b'{"x":"a1\\"b2\\\\c3?d4"}')
    assert not known.is_in(b'{"x":"a1"}')
    known.learn("field", SECRET)
    assert known.is_in(SECRET.encode())
