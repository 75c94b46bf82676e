import pytest

from redrive.reports.redact_names import Level, is_placeholder, judge, level_of, looks_random


@pytest.mark.parametrize(
    "name",
    ["password", "DB_PASSWORD", "dbPassword", "x-api-key", "apiKey", "client_secret", "APIKEY_2",
     "aws_secret_access_key", "accessToken", "result.list[0].password", "MY_API_KEY_PROD"],
)  # fmt: skip
def test_names_of_secrets(name):
    assert level_of(name) is Level.SURE


@pytest.mark.parametrize(
    "name",
    ["token_url", "password_hash_rounds", "input_tokens", "next_page_token", "cache_key",
     "keyboard", "primaryKey", "bypass", "PWD", "author", "pad_token", "a" * 200],
)  # fmt: skip
def test_names_of_what_is_no_secret(name):
    assert level_of(name) is None


def test_names_that_need_more():
    assert level_of("GITHUB_TOKEN") is level_of("key") is Level.MAYBE
    assert level_of("Authorization") is Level.HEADER
    assert level_of("Set-Cookie") is Level.COOKIE
    assert level_of("passphrase") is Level.PHRASE


@pytest.mark.parametrize(
    "value", ["${TOKEN}", "$TOKEN", "<password>", "{{ secret }}", "null", "OPENAI_API_KEY", "****"]
)
def test_stand_ins_are_no_secrets(value):
    assert is_placeholder(value)
    assert not judge(value, Level.SURE, is_quoted=True, is_assigned=True)


def test_random_is_neither_word_nor_digest_nor_path():
    assert looks_random("Zk3v9Qp1xT7b")
    for value in ("configuration2", "3f786850e387550fdab836ed7e6dc881de23001b", "/srv/a1/b2/c3d4",
                  "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0", "feature-branch-12"):  # fmt: skip
        assert not looks_random(value)


def test_a_passphrase_may_hold_spaces_and_prose_is_no_password():
    phrase = "correct horse battery staple"
    assert judge(phrase, Level.PHRASE, is_quoted=True, is_assigned=True)
    assert not judge("Enter your password here", Level.SURE, is_quoted=True, is_assigned=True)
