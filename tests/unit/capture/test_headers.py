import pytest

from redrive.capture.headers import keep_headers, safe_url

SECRET = "Zq7" + "fakefakefake01"


@pytest.mark.parametrize(
    "name",
    [
        "authorization",
        "Authorization",
        "x-api-key",
        "X-API-Key",
        "api-key",
        "cookie",
        "set-cookie",
        "proxy-authorization",
        "proxy-anything",
        "x-goog-api-key",
        "ocp-apim-subscription-key",
        "x-amz-security-token",
        "openai-api-key",
        "anthropic-auth-token",
        "x-stainless-secret",
        "x-unknown",
        "authentication",
        " authorization ",
    ],
)
def test_a_credential_and_an_unknown_header_are_left_out(name):
    assert keep_headers([(name, SECRET), ("content-type", "a/b")]) == {"content-type": "a/b"}


@pytest.mark.parametrize(
    "name",
    [
        "content-type",
        "content-encoding",
        "openai-processing-ms",
        "openai-version",
        "anthropic-version",
        "anthropic-beta",
        "anthropic-ratelimit-tokens-remaining",
        "x-request-id",
        "request-id",
        "retry-after",
        "x-ratelimit-remaining-tokens",
        "date",
        "cf-ray",
        "x-stainless-retry-count",
    ],
)
def test_a_header_that_matters_is_kept_in_lower_case(name):
    assert keep_headers({name.title(): " v "}) == {name: "v"}


def test_a_header_that_comes_twice_is_joined():
    assert keep_headers([("Via", "1.1"), ("x-cache", "a"), ("X-Cache", "b")]) == {"x-cache": "a, b"}


def test_of_free_text_only_products_are_kept():
    agent = f"OpenAI/Python 1.2.3 (key {SECRET}) token={SECRET} httpx/0.28"
    assert keep_headers({"user-agent": agent}) == {"user-agent": "OpenAI/Python httpx/0.28"}


def test_a_value_of_no_sensible_length_is_left_out():
    assert keep_headers({"date": "x" * 401, "server": ""}) == {}


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://api.openai.com/v1/chat", "https://api.openai.com/v1/chat"),
        (f"https://u:{SECRET}@h.test:8443/a", "https://h.test:8443/a"),
        (f"https://{SECRET}@h.test/a#{SECRET}", "https://h.test/a"),
        (f"https://h.test/a?key={SECRET}&n=1", "https://h.test/a?key=…&n=…"),
        (
            "https://a.azure.test/x?api-version=2024-10-21&sig=1",
            "https://a.azure.test/x?api-version=2024-10-21&sig=…",
        ),
        (f"https://h.test/?api-version={SECRET}%20x", "https://h.test/?api-version=…"),
        (f"https://h.test/?{SECRET}", "https://h.test/?…"),
        (f"https://h.test/?{SECRET}%2B=1&&beta=true", "https://h.test/?…&beta=true"),
        (f"https://u:{SECRET}/x@h.test/a?b", "h.test/a"),
        (f"https://u:{SECRET}?x@h.test/a", "h.test/a"),
        (f"https://u:123/{SECRET}@h.test", "h.test"),
        ("http://[::1]:80/a", "http://[::1]:80/a"),
        ("http://[bad/a?b", "http://[bad/a"),
        ("/v1/models?limit=3", "/v1/models?limit=…"),
        ("data:text/plain,x", "data:text/plain,x"),
    ],
)
def test_an_address_keeps_nothing_that_opens_a_door(url, safe):
    assert safe_url(url) == safe
