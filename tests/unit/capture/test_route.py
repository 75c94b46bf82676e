import pytest

from redrive.capture.route import Route, parse_route

PROXY = "http://127.0.0.1:4000/t0ken"
ROUTE = Route(
    PROXY,
    (
        (f"{PROXY}/openai/", "https://api.openai.com"),
        (f"{PROXY}/openai/v1/beta", "https://beta.example/x/"),
    ),
)


@pytest.mark.parametrize(
    ("url", "real"),
    [
        (f"{PROXY}/openai/v1/chat?a=1", "https://api.openai.com/v1/chat?a=1"),
        (f"{PROXY}/openai/v1/beta/chat", "https://beta.example/x/chat"),
        (f"{PROXY}/openai/v1/betamax", "https://api.openai.com/v1/betamax"),
        (f"{PROXY}/openai", "https://api.openai.com"),
        (f"{PROXY}/other/v1", "http://127.0.0.1:4000/other/v1"),
        (f"{PROXY}?q", "http://127.0.0.1:4000?q"),
    ],
)
def test_a_proxied_url_becomes_that_of_the_upstream_without_the_token(url: str, real: str) -> None:
    assert ROUTE.is_proxied(url)
    assert ROUTE.real_url(url) == real


@pytest.mark.parametrize("url", ["https://api.openai.com/v1", f"{PROXY}n/openai/v1", ""])
def test_any_other_url_stays_as_it_is(url: str) -> None:
    assert not ROUTE.is_proxied(url)
    assert ROUTE.real_url(url) == url


def test_without_a_proxy_nothing_is_proxied() -> None:
    assert parse_route({}) == Route()
    assert not Route().is_proxied("http://127.0.0.1/")
    assert Route().real_url("/x") == "/x"


def test_the_environment_names_proxy_and_upstreams() -> None:
    environ = {"REDRIVE_PROXY_URL": PROXY, "REDRIVE_UPSTREAMS": f'{{"{PROXY}/a":"https://b"}}'}
    assert parse_route(environ) == Route(PROXY, ((f"{PROXY}/a", "https://b"),))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a":1}', "null"])
def test_unreadable_upstreams_count_as_none(text: str) -> None:
    environ = {"REDRIVE_PROXY_URL": PROXY, "REDRIVE_UPSTREAMS": text}
    assert parse_route(environ) == Route(PROXY)
