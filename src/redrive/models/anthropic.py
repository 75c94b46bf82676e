"""Models behind the Anthropic Messages API.

Knows where its requests go. Must not know HTTP (that is `http`) nor change what is sent.

Source: the Anthropic API reference, "Messages" and "Streaming Messages"; DESIGN.md §8 "Specs".
"""

from redrive.models.http import HttpClient, parse_endpoint
from redrive.models.options import ModelOptions
from redrive.models.resend import ask, prepare
from redrive.replay.anthropic_answers import MESSAGES, parse_message
from redrive.replay.ports import ModelQuery, ModelReply

API_KEY = "ANTHROPIC_API_KEY"
API_VERSION = "2023-06-01"


class AnthropicModel:
    """Re-sends recorded bodies to one server of the Messages API.

    Args:
        spec: as the user wrote it.
        name: the model to ask for; empty means the recorded one.
        url: base URL, with or without `/v1`.
        options: timeout, decisions and the environment that may hold `ANTHROPIC_API_KEY`.
    """

    reads_context = True
    apis: tuple[str, ...] = (MESSAGES,)

    def __init__(self, spec: str, name: str, url: str, options: ModelOptions) -> None:
        self.spec = spec
        self._name = name
        self._url = f"{url.removesuffix('/v1')}/v1/messages"
        self._decisions = options.decisions
        key = options.environment.get(API_KEY, "")
        headers = {"anthropic-version": API_VERSION} | ({"x-api-key": key} if key else {})
        self._client = HttpClient(headers, key, options.timeout_s)

    def decide(self, query: ModelQuery) -> ModelReply:
        """Send the query's body and read the answer; see `Model.decide`."""
        request = prepare(query, self.apis, self._name)
        return ask(self._client, self._url, request, parse_message, decisions=self._decisions)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def open_model(argument: str, options: ModelOptions) -> AnthropicModel:
    """Open `anthropic:NAME@URL`.

    Raises:
        UsageError: the spec has no usable URL.
    """
    endpoint = parse_endpoint("anthropic", argument)
    return AnthropicModel(f"anthropic:{argument}", endpoint.name, endpoint.url, options)
