"""Models behind an OpenAI-compatible API: chat completions and responses.

Knows where its requests go. Must not know HTTP (that is `http`) nor change what is sent.

Source: the OpenAI API reference, "Chat" and "Responses"; DESIGN.md §8 "Specs".
"""

from urllib.parse import urlsplit

from redrive.models.http import HttpClient, parse_endpoint
from redrive.models.options import ModelOptions
from redrive.models.resend import ask, prepare
from redrive.replay.openai_answers import CHAT, RESPONSES, parse_chat, parse_responses
from redrive.replay.ports import ModelQuery, ModelReply

API_KEY = "OPENAI_API_KEY"
_PATHS = {CHAT: "/chat/completions", RESPONSES: "/responses"}


class OpenAiModel:
    """Re-sends recorded bodies to one OpenAI-compatible server.

    Args:
        spec: as the user wrote it.
        name: the model to ask for; empty means the recorded one.
        url: base URL; without a path, `/v1` is added.
        options: timeout, decisions and the environment that may hold `OPENAI_API_KEY`.
    """

    reads_context = True
    apis: tuple[str, ...] = (CHAT, RESPONSES)

    def __init__(self, spec: str, name: str, url: str, options: ModelOptions) -> None:
        self.spec = spec
        self._name = name
        self._url = url if urlsplit(url).path else f"{url}/v1"
        self._decisions = options.decisions
        key = options.environment.get(API_KEY, "")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._client = HttpClient(headers, key, options.timeout_s)

    def decide(self, query: ModelQuery) -> ModelReply:
        """Send the query's body and read the answer; see `Model.decide`."""
        request = prepare(query, self.apis, self._name)
        return ask(
            self._client,
            self._url + _PATHS[request.api],
            request,
            _PARSERS[request.api],
            decisions=self._decisions,
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def open_model(argument: str, options: ModelOptions) -> OpenAiModel:
    """Open `openai:NAME@URL`.

    Raises:
        UsageError: the spec has no usable URL.
    """
    endpoint = parse_endpoint("openai", argument)
    return OpenAiModel(f"openai:{argument}", endpoint.name, endpoint.url, options)


_PARSERS = {CHAT: parse_chat, RESPONSES: parse_responses}
