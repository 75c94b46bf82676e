"""Where agents find their model: the variables that name its server.

Tables and pure functions. Must not read the environment: it is an argument.

Source of each row: the SDK or framework named in `read_by`, whose code or documentation reads the
variable; see docs/recording-proxy.md.
"""

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from urllib.parse import urlsplit, urlunsplit

import msgspec

_OPENAI = "https://api.openai.com"
_ANTHROPIC = "https://api.anthropic.com"
_GOOGLE = "https://generativelanguage.googleapis.com"


class When(StrEnum):
    """When a variable is set for the agent."""

    ALWAYS = "always"
    NAMED = "where your environment has it"


class Target(msgspec.Struct, frozen=True):
    """A variable that names a model's server.

    Attributes:
        variable: of the environment.
        upstream: the name that the server has in the proxy's URLs; rows may share it.
        url: the server where the variable is absent; empty where there is no one default.
        suffix: the path that readers expect in the variable, such as `/v1`.
        when: rows that are not always set are only rewritten where the user's environment has
            them: their presence alone changes what agents do, or readers disagree on the path.
        read_by: who reads it.
    """

    variable: str
    upstream: str
    url: str
    suffix: str
    when: When
    read_by: str


TARGETS = (
    Target(
        "OPENAI_BASE_URL", "openai", _OPENAI, "/v1", When.ALWAYS, "OpenAI SDKs, Agents SDK, Codex"
    ),
    Target("OPENAI_API_BASE", "openai", _OPENAI, "/v1", When.ALWAYS, "LangChain, LiteLLM, aider"),
    Target(
        "ANTHROPIC_BASE_URL",
        "anthropic",
        _ANTHROPIC,
        "",
        When.ALWAYS,
        "Anthropic SDKs, Claude Code",
    ),
    Target("ANTHROPIC_API_BASE", "anthropic", _ANTHROPIC, "", When.NAMED, "LiteLLM"),
    Target("AZURE_OPENAI_ENDPOINT", "azure", "", "", When.NAMED, "OpenAI SDKs, LangChain"),
    Target("ANTHROPIC_FOUNDRY_BASE_URL", "foundry", "", "", When.NAMED, "Anthropic SDKs"),
    Target("ANTHROPIC_VERTEX_BASE_URL", "vertex-anthropic", "", "", When.NAMED, "Anthropic SDKs"),
    Target("GOOGLE_GEMINI_BASE_URL", "google", _GOOGLE, "", When.NAMED, "Google Gen AI SDKs"),
    Target("GOOGLE_VERTEX_BASE_URL", "vertex", "", "", When.NAMED, "Google Gen AI SDKs"),
    Target("GROQ_BASE_URL", "groq", "https://api.groq.com", "", When.NAMED, "Groq SDK"),
    Target(
        "TOGETHER_BASE_URL",
        "together",
        "https://api.together.xyz",
        "/v1",
        When.NAMED,
        "Together SDK",
    ),
    Target(
        "CEREBRAS_BASE_URL", "cerebras", "https://api.cerebras.ai", "", When.NAMED, "Cerebras SDK"
    ),
    Target("CO_API_URL", "cohere", "https://api.cohere.com", "", When.NAMED, "Cohere SDK"),
    Target(
        "OPENROUTER_API_BASE",
        "openrouter",
        "https://openrouter.ai/api",
        "/v1",
        When.NAMED,
        "LiteLLM",
    ),
    Target("DEEPSEEK_API_BASE", "deepseek", "https://api.deepseek.com", "", When.NAMED, "LiteLLM"),
    Target("OLLAMA_HOST", "ollama", "http://127.0.0.1:11434", "", When.NAMED, "Ollama clients"),
)

_OLLAMA_PORT = 11434
_LOOPBACK = ("127.0.0.1", "localhost")
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


class Pointing(msgspec.Struct, frozen=True):
    """How an agent's environment has to change, and what the proxy then passes requests on to.

    Attributes:
        changes: variables to set.
        upstreams: name in the proxy's URLs → base URL of the server.
        left: variables that name a server in a form that is not understood; they stay as they
            are, so what goes there is not seen.
    """

    changes: Mapping[str, str]
    upstreams: Mapping[str, str]
    left: tuple[str, ...]


def point_at(
    environment: Mapping[str, str],
    url_for: Callable[[str], str],
    also: Collection[str] = (),
) -> Pointing:
    """Point an agent's environment at a recording proxy.

    A server that the environment already names is the one that is passed on to. Where two
    variables of one provider name different servers, the second becomes an upstream of its own.

    Args:
        environment: the agent's, as it would be without the proxy.
        url_for: gives the proxy's URL of an upstream's name.
        also: names of upstreams whose variables are set even where they are absent, beside those
            that always are.
    """
    changes: dict[str, str] = {}
    upstreams: dict[str, str] = {}
    left: list[str] = []
    for target in TARGETS:
        value = environment.get(target.variable, "").strip()
        if not value and not (
            target.url and (target.when is When.ALWAYS or target.upstream in also)
        ):
            continue
        named = _parse_named(target, value) if value else _Named(target.url, target.suffix, "")
        if named is None:
            left.append(target.variable)
            continue
        name = _name_of(target.upstream, named.root, upstreams)
        upstreams[name] = named.root
        changes[target.variable] = _with_user(url_for(name), named.user) + named.suffix
    changes |= _loopback_exempted(environment)
    return Pointing(changes, upstreams, tuple(left))


class _Named(msgspec.Struct, frozen=True):
    """A server as a variable names it: base URL, path after it, and user info for the client."""

    root: str
    suffix: str
    user: str


def _parse_named(target: Target, value: str) -> _Named | None:
    """Read a variable; `None` where it holds no plain http(s) URL."""
    if target.upstream == "ollama" and "://" not in value:
        value = _ollama_url(value)
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    if parts.query or parts.fragment or not (value.isascii() and value.isprintable()):
        return None
    user, _, authority = parts.netloc.rpartition("@")
    path = parts.path.rstrip("/")
    has_suffix = bool(target.suffix) and path.endswith(target.suffix)
    root = path.removesuffix(target.suffix) if has_suffix else path
    base = urlunsplit((parts.scheme, authority, root, "", ""))
    return _Named(base, target.suffix if has_suffix else "", user)


def _ollama_url(value: str) -> str:
    """Complete a host as Ollama's clients do: scheme and port may be absent, and so may the host.

    An address that servers listen on (`0.0.0.0`) is reached over loopback.
    """
    host, _, path = value.partition("/")
    name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not host.count(":") or host.endswith("]"):
        name, port = host, ""
    if name in ("", "0.0.0.0", "[::]"):  # noqa: S104 # nosec B104 - compared only
        name = "127.0.0.1"
    return f"http://{name}:{port or _OLLAMA_PORT}" + (f"/{path}" if path else "")


def _name_of(wanted: str, root: str, upstreams: Mapping[str, str]) -> str:
    """Give the name that stands for this server, or the next free one."""
    name, count = wanted, 1
    while upstreams.get(name, root) != root:
        count += 1
        name = f"{wanted}-{count}"
    return name


def _with_user(url: str, user: str) -> str:
    """Put a user's name and password back, which the client turns into a header itself."""
    return url.replace("://", f"://{user}@", 1) if user else url


def _loopback_exempted(environment: Mapping[str, str]) -> dict[str, str]:
    """Keep requests to us off the proxy that the agent's own environment names."""
    if not any(environment.get(name) for name in _PROXIES):
        return {}
    changes = {}
    for name in ("no_proxy", "NO_PROXY"):
        hosts = [host.strip() for host in environment.get(name, "").split(",") if host.strip()]
        if "*" not in hosts:
            changes[name] = ",".join([*hosts, *(h for h in _LOOPBACK if h not in hosts)])
    return changes
