"""How an agent is pointed at the proxy, and where its requests then go."""

import pytest

from redrive.capture.targets import TARGETS, When, point_at
from redrive.capture.upstream import parse_upstream


def url_for(name: str) -> str:
    return f"http://127.0.0.1:9/T/{name}"


def test_an_environment_that_names_nothing_goes_to_the_public_servers() -> None:
    pointing = point_at({}, url_for)
    assert pointing.changes == {
        "OPENAI_BASE_URL": "http://127.0.0.1:9/T/openai/v1",
        "OPENAI_API_BASE": "http://127.0.0.1:9/T/openai/v1",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/T/anthropic",
    }
    assert pointing.upstreams == {
        "openai": "https://api.openai.com",
        "anthropic": "https://api.anthropic.com",
    }
    assert pointing.left == ()


@pytest.mark.parametrize(
    ("variable", "value", "root", "changed"),
    [
        ("OPENAI_BASE_URL", "http://my-gateway/v1", "http://my-gateway", "openai/v1"),
        ("OPENAI_BASE_URL", "http://gw:8080/team/v1/", "http://gw:8080/team", "openai/v1"),
        ("OPENAI_BASE_URL", "http://gw/custom", "http://gw/custom", "openai"),
        ("ANTHROPIC_BASE_URL", "https://gw/anthropic", "https://gw/anthropic", "anthropic"),
        (
            "AZURE_OPENAI_ENDPOINT",
            "https://r.openai.azure.com/",
            "https://r.openai.azure.com",
            "azure",
        ),
        (
            "GROQ_BASE_URL",
            "https://api.groq.com/openai/v1",
            "https://api.groq.com/openai/v1",
            "groq",
        ),
        ("OLLAMA_HOST", "http://box:1", "http://box:1", "ollama"),
        ("OLLAMA_HOST", "box", "http://box:11434", "ollama"),
        ("OLLAMA_HOST", "box:80", "http://box:80", "ollama"),
        ("OLLAMA_HOST", ":80", "http://127.0.0.1:80", "ollama"),
        ("OLLAMA_HOST", "0.0.0.0", "http://127.0.0.1:11434", "ollama"),  # noqa: S104
        ("OLLAMA_HOST", "[::1]:80/x", "http://[::1]:80/x", "ollama"),
        ("OLLAMA_HOST", "[::1]", "http://[::1]:11434", "ollama"),
    ],
)
def test_the_server_that_a_user_names_is_the_one_passed_on_to(
    variable: str, value: str, root: str, changed: str
) -> None:
    pointing = point_at({variable: value}, url_for)
    assert pointing.changes[variable] == f"http://127.0.0.1:9/T/{changed}"
    assert pointing.upstreams[changed.partition("/")[0]] == root
    parse_upstream(root)


def test_two_variables_of_one_provider_may_name_two_servers() -> None:
    environment = {"OPENAI_BASE_URL": "http://a/v1", "OPENAI_API_BASE": "http://b/v1"}
    pointing = point_at(environment, url_for)
    assert pointing.changes["OPENAI_API_BASE"] == "http://127.0.0.1:9/T/openai-2/v1"
    assert pointing.upstreams["openai"] == "http://a"
    assert pointing.upstreams["openai-2"] == "http://b"


def test_credentials_in_a_url_stay_with_the_client() -> None:
    pointing = point_at({"OPENAI_BASE_URL": "https://user:p%40ss@gw/v1"}, url_for)
    assert pointing.changes["OPENAI_BASE_URL"] == "http://user:p%40ss@127.0.0.1:9/T/openai/v1"
    assert pointing.upstreams["openai"] == "https://gw"


@pytest.mark.parametrize(
    "value", ["gw/v1", "unix:///x", "http://", "http://gw/?key=x", "http://gw:x/", "http://é"]
)
def test_a_value_that_is_no_plain_url_is_left_and_named(value: str) -> None:
    pointing = point_at({"OPENAI_BASE_URL": value}, url_for)
    assert pointing.left == ("OPENAI_BASE_URL",)
    assert "OPENAI_BASE_URL" not in pointing.changes


def test_other_providers_are_pointed_at_only_where_named_or_asked_for() -> None:
    assert "google" not in point_at({}, url_for).upstreams
    asked = point_at({}, url_for, also=("google", "azure"))
    assert asked.changes["GOOGLE_GEMINI_BASE_URL"] == "http://127.0.0.1:9/T/google"
    assert asked.upstreams["google"] == "https://generativelanguage.googleapis.com"
    assert "azure" not in asked.upstreams, "it has no one server"


@pytest.mark.parametrize(
    ("environment", "changed"),
    [
        ({}, {}),
        ({"no_proxy": "x"}, {}),
        (
            {"HTTP_PROXY": "http://p"},
            {"no_proxy": "127.0.0.1,localhost", "NO_PROXY": "127.0.0.1,localhost"},
        ),
        (
            {"all_proxy": "http://p", "NO_PROXY": "a, localhost"},
            {"no_proxy": "127.0.0.1,localhost", "NO_PROXY": "a,localhost,127.0.0.1"},
        ),
        ({"http_proxy": "http://p", "no_proxy": "*", "NO_PROXY": "*"}, {}),
    ],
)
def test_an_agent_behind_a_proxy_reaches_us_without_it(
    environment: dict[str, str], changed: dict[str, str]
) -> None:
    changes = point_at(environment, url_for).changes
    assert {k: v for k, v in changes.items() if k.lower() == "no_proxy"} == changed


def test_every_row_is_a_variable_of_its_own_and_its_default_an_upstream() -> None:
    assert len({target.variable for target in TARGETS}) == len(TARGETS)
    for target in TARGETS:
        if target.url:
            assert parse_upstream(target.url).root == target.url
        else:
            assert target.when is When.NAMED
