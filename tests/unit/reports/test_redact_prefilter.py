import json

import pytest

from redrive.reports.redact import Redactor
from redrive.reports.redact_prefilter import find_prefixes, find_suspects
from tests.planted_secrets import plant


def is_suspected(data):
    return any(True for search in (find_prefixes, find_suspects) for _ in search(data))


def unfiltered(data):
    return Redactor(b"k" * 32)._json(data, is_shaped=True)


def test_whatever_the_rules_find_is_suspected():
    for seed in range(20, 24):
        for p in plant(seed):
            for data in (
                json.dumps({"out": p.text}),
                json.dumps({"out": p.text}, ensure_ascii=False),
            ):
                found = unfiltered(data.encode()) != data.encode()
                assert not found or is_suspected(data.encode()), (p.shape, p.spelling)
                assert Redactor(b"k" * 32).json(data.encode()) == unfiltered(data.encode())


@pytest.mark.parametrize(
    "text",
    [
        '{"tokens":4096,"input_tokens":12,"keyboard":"x","author":"someone else"}',
        '{"text":"a long_identifier_in_some_source_code and https://h.test:443/path"}',
        '{"sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}',
    ],
)
def test_what_is_far_from_a_secret_costs_no_second_look(text):
    assert not is_suspected(text.encode())


def test_third_party_sessions_lose_nothing_to_the_prefilter(samples):
    for path in sorted(samples.rglob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            assert Redactor(b"k" * 32).json(line) == unfiltered(line), path.name
