import json
from itertools import pairwise

import pytest

from redrive.audit.redaction import find_mark
from redrive.reports.redact import MARK, Redactor, find_spans
from tests.costs import grows_linearly
from tests.planted_secrets import plant

# ruff: noqa: E501 - texts as they are found
READABLE = (
    "region ASIAPACIFIC, board task-proj-board, sketch-ant-hill=ok",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    '{"id":"0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0","input_tokens":4096,"next_page_token":"a1b2c3"}',
    "def login(user, password: str, token=None): return self._token(password=password)",
    "api_key=os.environ['OPENAI_API_KEY']  # see .env; PASSWORD=$DB_PASSWORD",
    "pip install sk-learn; from huggingface import hf_hub_download; npm_config_cache=1",
    "Use Bearer authentication or Basic authentication with your token.",
    "http://localhost:8080/a?key=name https://[::1]:80/ git@github.com:owner/name.git",
    '{"type":"object","properties":{"password":{"type":"string"}},"required":["password"]}',
    '{"key":"sort","cache_key":"v2:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}',
    'if "-----BEGIN PRIVATE KEY-----" in text: raise ValueError',
    "docker run -u 1000:1000 -p 80:80 image; psql; PWD=/srv/app",
    "sk-ant-xxxxxxxxxxxxxxxxxxxxxxxx and password=********",
)
ADVERSARIAL = (
    "sk-", "sk-proj-", "eyJ", "eyJ.", "://", "://a:", "a@", "password=", 'password="', "password='a",
    "token ", "Bearer ", "-----BEGIN PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAA",
    "\\u0041", "%41", "%2541", "\\", '\\"', "-u a:", "mysql ", "AKIA", ":AA", "1:AA", "_key_", "a",
    "AKIAABCDEFGHIJKLMNOP ", "[redacted:", "[redacted:a:00000000]", "login x password ", "Cookie: a=",
)  # fmt: skip


@pytest.fixture
def redactor():
    return Redactor(b"k" * 32)


@pytest.mark.parametrize("text", READABLE)
def test_what_is_no_secret_stays_readable(redactor, text):
    assert redactor.text(text) == text
    assert redactor.json(json.dumps({"a": text}).encode()) == json.dumps({"a": text}).encode()


def test_the_mark_is_one_that_the_audit_knows(redactor):
    text = redactor.text("use sk-" + "proj-fakefakefakefakefake01 now")
    assert find_mark(text) == MARK.search(text).group()


def test_equal_secrets_match_each_other_under_one_key_only(redactor):
    secret = "gh" + "p_" + "Fake0" * 8
    first, second = redactor.text(f"a {secret} b"), redactor.json(f'["{secret}"]'.encode()).decode()
    assert MARK.search(first).group() == MARK.search(second).group()
    spelled = redactor.text("x " + secret.replace("_", "%5F"))
    assert MARK.search(first).group() == MARK.search(spelled).group()
    assert MARK.search(Redactor(b"j" * 32).text(secret)).group() != MARK.search(first).group()


def test_no_planted_secret_is_left(redactor):
    planted = list(plant())
    assert len(planted) >= 200
    assert len({p.shape for p in planted}) >= 30
    leaks = []
    for p in planted:
        document = json.dumps({"result": [p.text], p.text: 1}).encode()
        outputs = [redactor.text(p.text), redactor.json(document).decode()]
        outputs.append(json.dumps(redactor.value({"result": [p.text]})))
        leaks += [(p.shape, p.spelling, output) for output in outputs if p.leaks_in(output)]
        json.loads(outputs[1])
    assert leaks == []


def test_redacting_twice_changes_nothing(redactor):
    for p in plant(8):
        once = redactor.text(p.text)
        assert redactor.text(once) == once
        document = redactor.json(json.dumps({"result": p.text, "password": p.secret}).encode())
        assert redactor.json(document) == document


def test_no_planted_secret_is_left_wherever_a_text_is_cut(redactor):
    for p in plant(9):
        if p.secret not in p.text:
            continue
        begin = p.text.index(p.secret)
        for end in range(begin + 9, min(begin + len(p.secret), begin + 90), 7):
            for cut in (p.text[:end], f"{p.text[:end]}… (9000 characters)"):
                assert not p.leaks_in(redactor.text(cut)), (p.shape, cut)
            assert not p.leaks_in(redactor.redact_excerpt(p.text, end)), (p.shape, end)


@pytest.mark.parametrize("name", ["x-api-key", "--token", "auth_token", "session_key"])
@pytest.mark.parametrize("sign", [", ", ": "])
def test_a_secret_cut_off_at_the_end_of_a_string_is_found_whatever_string_comes_next(
    redactor, name, sign
):
    begun = f'["{name}"{sign}"aB3dE5gH7jK9m'
    for after in (begun + 'Q1"]', '["accept", "*/*"]', 'says "x"'):
        written = json.dumps(redactor.value({"a": begun, "b": after}))
        assert "aB3dE5gH7" not in written
        if not after.startswith(begun):
            assert json.dumps(after) in written  # and nothing of the next one is taken for it


def test_an_excerpt_is_redacted_before_it_is_cut(redactor):
    text = "x" * 5 + " password=hunter2-fake tail"
    whole = redactor.text(text)
    assert redactor.redact_excerpt(text, 1000) == whole
    for limit in range(len(whole)):
        cut = redactor.redact_excerpt(text, limit)
        assert whole.startswith(cut)
        assert cut.count("[") == cut.count("]")


def test_a_part_of_a_text_knows_the_whole(redactor):
    body = "\n".join(["MIIEfakefakefakefakefakefake0123"] * 4)
    text = f"key:\n-----BEGIN {'RSA'} PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----\nend"
    part = redactor.parts(text)
    start = text.index("MIIE", 80)
    assert MARK.fullmatch(part(start, start + 20))
    assert part(0, 3) == "key"
    assert part(len(text) - 3, len(text)) == "end"


def test_json_keeps_its_numbers_order_and_spelling(redactor):
    data = (
        b'{"z":1.0,"a":18446744073709551616,"s":"\\u00e9\\ud800",'
        b'"password":"hunter-2-fake","b":1e2}'
    )
    redacted = redactor.json(data)
    assert MARK.sub("M", redacted.decode()) == (
        '{"z":1.0,"a":18446744073709551616,"s":"\\u00e9\\ud800","password":"M","b":1e2}'
    )


def test_json_lines_are_redacted_each_on_its_own(redactor):
    lines = [json.dumps({"n": n, "t": "word " * 50}).encode() for n in range(3000)]
    lines[1500] = b'{"api_key":"fake-0123456789"}'
    redacted = list(redactor.json_lines(iter(lines)))
    assert [n for n, line in enumerate(redacted) if line != lines[n]] == [1500]
    assert redactor.n_marks == 1


@pytest.mark.parametrize(
    "value",
    [
        {"password": ["fake-one-1", "fake-two-2"]},
        {"name": "DB_PASSWORD", "value": "fake-one-1"},
        {"value": "fake-one-1", "key": "api_key"},
        {"secret": {"value": "fake-one-1"}},
        ["--password", "fake-one-1"],
        [["x-api-key", "fake-one-1x9z"]],
        {"password": 918273645},
        {"set-cookie": ["sid=fake-one-1; Path=/"]},
        "password: fake-one-1",
    ],
)
def test_a_value_is_redacted_by_its_structure(redactor, value):
    redacted = redactor.value(value)
    assert MARK.search(json.dumps(redacted))
    assert "fake-one" not in json.dumps(redacted)
    assert "918273645" not in json.dumps(redacted)


def test_a_value_without_secrets_is_the_same_object(redactor):
    value = {"a": [1, 1.5, None, "\ud800 text"], "id": "f" * 64}
    assert redactor.value(value) is value
    assert redactor.n_marks == 0


@pytest.mark.parametrize("unit", ADVERSARIAL)
def test_a_long_hostile_text_costs_linear_time(redactor, unit):
    # Keys and quoted values are read up to 32 KiB far; beyond that a cost has to be linear.
    def redact_text(size):
        redactor.text(unit * (size // len(unit)))

    def redact_json(size):
        redactor.json(json.dumps([unit * (size // len(unit))]).encode())

    assert grows_linearly(redact_text, 32_000)
    assert grows_linearly(redact_json, 32_000)


def test_deeply_nested_and_torn_json_is_still_redacted(redactor):
    deep = b"[" * 5000 + b'{"password":"fake-one-1"}'
    assert b"fake-one" not in redactor.json(deep)
    assert b"fake-one" not in redactor.json(b'{"password":"fake-one-1')


def test_spans_are_in_order_and_apart():
    for p in plant(10):
        spans = find_spans(p.text)
        assert all(a.end <= b.start for a, b in pairwise(spans))
        assert all(span.start < span.end <= len(p.text) for span in spans)
