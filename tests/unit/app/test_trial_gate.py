"""What a run may ask of which model; what leaves for a real server, and what is kept of it."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from redrive.app.trial_context import upstream_of
from redrive.app.trial_gate import ModelGate
from redrive.app.trial_ports import OpenedModel
from redrive.app.trial_state import RunState
from redrive.capture.ports import Outcome, Passing, SentRequest, ServedAnswer
from redrive.capture.recording import RecordingBackend
from redrive.capture.remote_serving import open_remote
from redrive.record.event import Event, Kind, SessionStarted
from redrive.replay.trial_plan import PlanModel, RunLimits
from redrive.replay.trial_values import Outcome as RunOutcome
from redrive.replay.trial_values import Price
from redrive.sandbox.door import find_level
from tests.chat_server import answer_with
from tests.loopback_server import Answer, LoopbackServer, run_server
from tests.trial_runs import Bench, FakeAccount, make_model, output_of

needs_sandbox = pytest.mark.skipif(
    not find_level().is_proven, reason=f"no proven sandbox here: {find_level().reason}"
)
PRICE = Price(Decimal(1), Decimal(1))
KEY = "sk-of-the-endpoint"
CHAT = "/v1/chat/completions"


class _Events:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def put(self, events: Any, artefacts: Any = ()) -> None:
        self.events += events

    def flush(self) -> None:
        pass


class _Stand:
    """A gate with a recording of its own."""

    def __init__(self, *models: OpenedModel, limits: RunLimits | None = None) -> None:
        self.sink = _Events()
        self.account = FakeAccount()
        self.state = RunState(limits or RunLimits())
        backend = RecordingBackend(
            self.sink, "s", SessionStarted(), now_ns=lambda: 0, by_context=False
        )
        seams = (backend, open_remote(backend))
        self.gate = ModelGate(models, self.account, self.state, lambda: seams, now_ns=lambda: 0)

    def ask(
        self,
        body: bytes = b'{"model":"small","messages":[]}',
        path: str = "/chat/completions",
        *,
        model: str = "small",
        method: str = "POST",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> Passing | ServedAnswer:
        name = upstream_of(model)
        url = self.gate.upstreams[name] + path
        request = SentRequest(method, url, headers, body, 0)
        return asyncio.run(self.gate.admit(name, request, {}))

    @property
    def kinds(self) -> list[Kind]:
        return [event.kind for event in self.sink.events]


def _remote(name: str = "small", **fields: Any) -> OpenedModel:
    return OpenedModel(
        PlanModel(name, "openai:x", PRICE), url="https://models.example/v1", **fields
    )


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"model":"other","messages":[]}', "/chat/completions"),
        (b'{"messages":[]}', "/chat/completions"),
        (b'{"model":"small","model":"other"}', "/chat/completions"),
        (b'{"model":"other","Model":"small"}', "/chat/completions"),
        (b'{"model":["small"]}', "/chat/completions"),
        (b"no json", "/chat/completions"),
        (b'{"model":"sm\xff"}', "/chat/completions"),
        (b'{"model":"small"}', "/files"),
        (b'{"model":"small"}', "/../admin/chat/completions"),
        (b'{"model":"small"}', "/v1/v1/chat/completions"),
        (b'{"model":"small"}', "/threads/x/messages"),
    ],
)
def test_a_request_that_is_not_plainly_for_the_planned_model_goes_nowhere_and_is_recorded(
    body: bytes, path: str
) -> None:
    stand = _Stand(_remote())
    answer = stand.ask(body, path)
    assert isinstance(answer, ServedAnswer)
    assert answer.status == 403
    assert [call.tool for call in stand.state.denied] == ["model:small"]
    assert stand.account.charges == []
    assert stand.sink.events


@pytest.mark.parametrize(
    "field",
    [
        '"tools":[{"type":"mcp","server_label":"x","server_url":"https://elsewhere.example"}]',
        '"tools":[],"tools":[{"type":"web_search_20250305","name":"web_search"}]',
        '"Tools":[{"type":"code_interpreter","container":{"type":"auto"}}]',
        '"mcp_servers":[{"type":"url","url":"https://elsewhere.example","name":"x"}]',
        '"web_search_options":{}',
        '"plugins":[{"id":"web"}]',
        '"search_parameters":{"mode":"on"}',
        '"messages":[{"role":"user","content":[{"type":"image_url",'
        '"image_url":{"url":"https://elsewhere.example/?said=secret"}}]}]',
        '"Input":[{"role":"user","content":[{"type":"input_file",'
        '"file_\\u0075rl":"https://elsewhere.example/x"}]}]',
    ],
)
def test_a_request_that_lets_the_provider_do_something_goes_nowhere_and_is_recorded(
    field: str,
) -> None:
    stand = _Stand(_remote())
    answer = stand.ask(f'{{"model":"small","input":"x",{field}}}'.encode(), "/responses")
    assert isinstance(answer, ServedAnswer)
    assert answer.status == 403
    assert "lets the provider " in stand.state.denied[0].reason
    assert stand.account.charges == []


def test_tools_that_the_run_itself_runs_may_be_named_to_a_model() -> None:
    tools = b'[{"type":"function","function":{"name":"f"}},{"name":"g","input_schema":{}},7]'
    body = b'{"model":"small","messages":[],"tools":%s,"plugins":[]}' % tools
    assert isinstance(_Stand(_remote()).ask(body), Passing)


def test_a_body_that_is_compressed_cannot_be_read_and_goes_nowhere() -> None:
    stand = _Stand(_remote())
    answer = stand.ask(headers=(("content-encoding", "gzip"),))
    assert isinstance(answer, ServedAnswer)
    assert stand.account.charges == []


def test_which_models_there_are_is_told_without_asking_anyone() -> None:
    stand = _Stand(_remote(), _remote("large"))
    answer = stand.ask(b"", "/models", method="GET")
    assert isinstance(answer, ServedAnswer)
    assert [one["id"] for one in json.loads(answer.body)["data"]] == ["small", "large"]
    assert stand.state.denied == ()
    assert stand.account.charges == []


def test_what_leaves_carries_the_endpoints_key_and_none_of_the_runs() -> None:
    stand = _Stand(_remote(headers=(("authorization", f"Bearer {KEY}"),), asks="small-2026"))
    passing = stand.ask()
    assert isinstance(passing, Passing)
    assert dict(passing.headers)["authorization"] == f"Bearer {KEY}"
    assert dict(passing.headers)["idempotency-key"] == "charge-0"
    assert {"authorization", "x-api-key", "cookie"} <= passing.dropped
    assert json.loads(passing.body or b"")["model"] == "small-2026"


def test_an_exchange_is_settled_once_by_what_came_back() -> None:
    stand = _Stand(_remote())
    passing = stand.ask()
    assert isinstance(passing, Passing)
    assert passing.observer is not None
    passing.observer.responded(200, (("a", "b"),), 0)
    passing.observer.received(b"half")
    passing.observer.finished(Outcome.CUT, 0, "gone")
    stand.gate.close()
    assert stand.account.charges[0].settled == [(200, b"half", Outcome.CUT)]


def test_an_exchange_whose_end_is_never_told_is_settled_when_the_run_is_over() -> None:
    stand = _Stand(_remote())
    stand.ask()
    assert stand.account.charges[0].settled == []
    stand.gate.close()
    assert stand.account.charges[0].settled == [(0, b"", Outcome.CUT)]


def test_a_model_of_this_process_that_fails_is_an_answer_and_settled() -> None:
    def fail(_: dict[str, Any]) -> str:
        raise LookupError("nothing left")

    stand = _Stand(make_model(fail))
    answer = stand.ask()
    assert isinstance(answer, ServedAnswer)
    assert (answer.status, b"nothing left" in answer.body) == (500, True)
    assert [one[0] for one in stand.account.charges[0].settled] == [500]
    assert Kind.MODEL_ERROR in stand.kinds


def test_an_answer_that_was_paid_for_is_recorded_and_served_again() -> None:
    stand = _Stand(_remote())
    stand.ask()
    paid = ServedAnswer(200, (), b"{}")
    stand.account.paid = {stand.account.asked[0].body: paid}
    assert stand.ask() is paid
    assert len(stand.account.charges) == 1
    assert stand.kinds.count(Kind.MODEL_REQUEST) == 2


def test_nothing_is_asked_beyond_the_limit_the_ceiling_or_the_end() -> None:
    stand = _Stand(_remote(), limits=RunLimits(model_calls=1))
    assert isinstance(stand.ask(), Passing)
    limited = stand.ask()
    assert isinstance(limited, ServedAnswer)
    assert (limited.status, stand.state.why) == (429, (RunOutcome.LIMIT, "more than 1 model calls"))
    stand = _Stand(_remote())
    stand.account.most = 0
    ceiling = stand.ask()
    assert isinstance(ceiling, ServedAnswer)
    assert (ceiling.status, stand.state.why) == (402, (RunOutcome.CEILING, "replay: 1.00 USD"))
    late = stand.ask()
    assert isinstance(late, ServedAnswer)
    assert (late.status, stand.state.denied[0].reason) == (403, "the run has ended")


def test_names_of_models_that_differ_have_upstreams_that_differ() -> None:
    names = ["small", "Small", "a/b", "a_b", "a-b", "a.b", "é", "_2f."]
    assert len({upstream_of(name) for name in names}) == len(names)


ASKING = """
import json
from redrive.trial import Workflow
def run(task, context):
    body = {"model": "small", "seed": 1, "stream": True, "messages": []}
    streamed = context.post("chat/completions", json.dumps(body).encode())
    plain = context.complete({"messages": [{"role": "user", "content": "a"}]})
    try:
        context.complete({"messages": [], "bad": True})
    except Exception as error:
        refused = f"{type(error).__name__}: {error}"
    return [streamed.decode().count("data:"), plain["choices"][0]["message"]["content"], refused]
workflow = Workflow("asking", version="1", tools=[], run=run)
"""


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(run_server())


@needs_sandbox
def test_a_run_asks_a_real_server_through_the_gate_and_its_key_is_kept_nowhere(
    tmp_path: Path, server: LoopbackServer
) -> None:
    scripted = answer_with(lambda messages, request: "one two")

    def answer(received: Any) -> Answer:
        if b'"bad"' in received.body:
            return Answer((b'{"error":{"message":"bad request"}}',), status=400)
        return scripted(received)

    server.answer = answer
    bench = Bench(tmp_path)
    model = OpenedModel(
        PlanModel("small", "openai:small", PRICE),
        url=f"{server.url}/v1",
        headers=(("authorization", f"Bearer {KEY}"),),
    )
    end = bench.run(ASKING, models=(model,))
    n_events, said, refused = output_of(end)
    assert (n_events > 3, said) == (True, "one two")
    assert refused.startswith("ModelError: model small: 400")
    assert [one.path for one in server.received] == [CHAT] * 3
    assert {one.headers["authorization"] for one in server.received} == {f"Bearer {KEY}"}
    keys = [one.headers["idempotency-key"] for one in server.received]
    assert keys == ["charge-0", "charge-1", "charge-2"]
    assert bench.account.settled_once
    assert [charge.settled[0][0] for charge in bench.account.charges] == [200, 200, 400]
    assert all(KEY.encode() not in bytes(event.payload) for event in bench.events(end))
    assert KEY.encode() not in bench.store.read_bytes()
