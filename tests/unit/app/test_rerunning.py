"""`redrive.rerun`: an agent on the real SDK, recorded into a store, run again without a network."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

import redrive
from redrive.app.rerun_proof import write_basis
from redrive.app.rerun_serving import (
    VARIANTS,
    CommandEnd,
    RerunReport,
    RerunRequest,
    open_case,
    rerun_command,
)
from redrive.capture.session import AgentSession
from redrive.compare.rerun_verdict import Finding
from redrive.errors import IneligibleError, PluginError, TamperError, UsageError
from redrive.stores.sqlite import open_store
from tests.schemas import check

AGENT = """
import json, random, time
import httpx2, openai

def total(*items):
    return sum(items)

def run(session, respond):
    started_s = time.monotonic()
    transport = session.transport(httpx2.MockTransport(respond))
    client = openai.OpenAI(api_key="k", base_url="http://model.test/v1", max_retries=0,
                           http_client=httpx2.Client(transport=transport))
    lookup = session.tool(effect="read_only", name="lookup")(lambda id: {"total": id * 2})
    messages = [{"role": "user", "content": "Refund order 7."}]
    while True:
        for attempt in range(3):
            try:
                answer = client.chat.completions.create(model="m", messages=messages, seed=7)
                break
            except openai.InternalServerError:
                time.sleep(random.uniform(0.001, 0.002))
        message = answer.choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            result = lookup(**json.loads(call.function.arguments))
            told = {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)}
            messages.append(told)
        total_ = session.derive(total, [0.1, 0.2, 0.3])
        messages.append({"role": "user", "content": f"in all {total_}"})
        assert time.monotonic() - started_s < 60
"""


def load(folder: Path, source: str) -> ModuleType:
    (folder / "pyproject.toml").touch()
    file = folder / "agent.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location("agent_under_test", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model(request: httpx2.Request, seen: list[int] | None = None) -> httpx2.Response:
    """Fail once, then ask for a tool, then answer."""
    body = json.loads(request.content)
    if seen is not None and not seen:
        seen.append(1)
        return httpx2.Response(500, json={"error": {"message": "busy"}})
    message: dict[str, Any] = {"role": "assistant", "content": "Refunded."}
    if len(body["messages"]) == 1:
        function = {"name": "lookup", "arguments": '{"id": 7}'}
        call = {"id": "c1", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    fields = {"id": "r", "object": "chat.completion", "created": 1, "model": "m-1"}
    return httpx2.Response(200, json=fields | {"choices": [choice]})


def refuse(request: httpx2.Request) -> httpx2.Response:
    raise AssertionError("a rerun asked the network")


class Stored:
    """One recorded session in a store of its own, and its agent in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "store.db"
        agent = load(folder, AGENT)
        seen: list[int] = []
        with redrive.record("refund", store=self.path, intercept=True, code=folder) as session:
            self.session_id = session.id
            agent.run(session, lambda request: model(request, seen))
            session.end("success")

    def rerun(self, source: str = AGENT, **options: Any) -> RerunReport:
        agent = load(self.folder, source)
        return redrive.rerun(
            lambda session: agent.run(session, refuse),
            self.session_id,
            store=self.path,
            code=self.folder,
            **options,
        )

    def changed(self, old: str, new: str) -> RerunReport:
        assert old in AGENT
        return self.rerun(AGENT.replace(old, new, 1))


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Stored:
    return Stored(tmp_path_factory.mktemp("stored"))


def test_the_same_code_is_identical_and_returns_the_same(stored):
    report = stored.rerun()
    assert report.identical
    assert report.value == "Refunded."
    document = report.document
    assert (document.finding, document.exit_code) == (Finding.IDENTICAL, 0)
    assert document.code.state == "equal"
    assert (document.served.requests, document.served.calls, document.served.values) == (3, 1, 1)
    assert document.agent.how == "returned"


@pytest.mark.parametrize(
    ("old", "new", "what", "exit_code"),
    [
        ("Refund order 7.", "Refund order 8.", "prompt differs", 1),
        ("json.loads(call.function.arguments)", '{"id": 8}', "tool argument", 1),
        ("random.uniform(0.001, 0.002)", "random.uniform(0.001, 0.003)", "prng read", 1),
        ("random.uniform(0.001, 0.002)", "0.001", "prng read", 1),
        ("[0.1, 0.2, 0.3]", "[0.3, 0.2, 0.1]", "derived input", 1),
        ("return sum(items)", "return sum(items[::-1])", "derivation not reproducible", 1),
        ("started_s = time.monotonic()", "started_s = time.time()", "clock read", 3),
        ('f"in all {total_}"', 'f"in all {total_} at {time.time()}"', "clock read", 3),
        (
            "return message.content",
            "messages.append(messages[0]); continue",
            "goes on beyond the record",
            1,
        ),
    ],
)
def test_a_change_is_named_where_it_first_shows(stored, old, new, what, exit_code):
    document = stored.changed(old, new).document
    assert document.divergence.what == what
    assert document.exit_code == exit_code
    assert document.code.state == "changed"
    mentions = [note for note in document.notes if "is not the code" in note]
    assert bool(mentions) == (exit_code == 1)


def test_an_unrecorded_input_is_no_change_of_the_code(stored):
    agent = load(
        stored.folder,
        AGENT.replace('"Refund order 7."', "__import__('pathlib').Path(PATH).read_text()"),
    )
    (stored.folder / "pyproject.toml").touch()
    file = stored.folder / "order.txt"
    agent.PATH = str(file)
    file.write_text("Refund order 7.")
    with redrive.record("r", store=stored.path, intercept=True, code=stored.folder) as session:
        agent.run(session, model)
    file.write_text("Refund order 8.")
    report = redrive.rerun(
        lambda again: agent.run(again, refuse), session.id, store=stored.path, code=stored.folder
    )
    assert report.document.finding is Finding.UNKNOWN_INPUT
    assert report.document.exit_code == 3
    assert report.document.code.state == "equal"


def test_how_the_agent_ends_stands_in_the_report(stored):
    def failing(session: AgentSession) -> None:
        raise ValueError("no")

    def leaving(session: AgentSession) -> None:
        raise SystemExit("bye")

    with _opened(stored.path) as store:
        raised = redrive.rerun(failing, stored.session_id, store=store).document
        left = redrive.rerun(leaving, stored.session_id, store=store).document
    assert (raised.agent.how, raised.agent.error) == ("raised", "ValueError: no")
    assert (left.agent.how, left.agent.exit_code) == ("exited", 1)
    assert raised.finding is not Finding.IDENTICAL


class _opened:  # noqa: N801 - reads as what it does
    def __init__(self, path: Path) -> None:
        self.store = open_store(path, create=False)

    def __enter__(self) -> Any:
        return self.store

    def __exit__(self, *_: object) -> None:
        self.store.close()


def test_an_async_agent_is_run_to_its_end(tmp_path):
    async def agent(session: AgentSession) -> str:
        client = httpx2.AsyncClient(transport=session.async_transport(httpx2.MockTransport(model)))
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        answer = await client.post("http://model.test/v1/chat/completions", json=body)
        return answer.json()["model"]

    import asyncio

    path = tmp_path / "store.db"
    with redrive.record("a", store=path, code=tmp_path) as session:
        asyncio.run(agent(session))
    report = redrive.rerun(agent, session.id, store=path)
    assert (report.identical, report.value) == (True, "m-1")


def test_a_live_model_answers_in_the_form_that_the_sdk_reads(stored, tmp_path):
    script = tmp_path / "shadow.jsonl"
    lines = [
        {"text": "", "tool_calls": [{"name": "lookup", "args": {"id": 7}}]},
        {"text": "Refused.", "final": True},
    ]
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = stored.rerun(model=f"script:{script}")
    document = report.document
    assert report.value == "Refused."
    assert (document.live_calls, document.served.calls) == (2, 1)
    assert [(d.equal, d.text_equal) for d in document.decisions] == [(True, True), (True, False)]
    assert not document.identical
    assert document.exit_code == 0


def test_a_live_model_that_wants_another_call_stops_at_what_is_not_recorded(stored, tmp_path):
    script = tmp_path / "shadow.jsonl"
    script.write_text('{"tool_calls": [{"name": "lookup", "args": {"id": 9}}]}\n{"final": true}\n')
    document = stored.rerun(model=f"script:{script}").document
    assert document.divergence.what == "tool argument"
    assert (document.finding, document.exit_code) == (Finding.GAP, 3)
    assert not document.decisions[0].equal


def test_a_model_that_fails_is_an_error_and_no_finding(stored, tmp_path):
    file = tmp_path / "model.py"
    file.write_text("def complete(prompt, config):\n    raise RuntimeError('down')\n")
    with pytest.raises(PluginError, match="down"):
        stored.rerun(model=f"python:{file}:complete")


def test_tools_that_no_seam_saw_are_refused_by_name_and_nothing_runs(tmp_path):
    path, ran = tmp_path / "store.db", []
    with redrive.record("a", store=path, code=tmp_path) as session:
        client = httpx2.Client(transport=session.transport(httpx2.MockTransport(model)))
        asked = [{"role": "user", "content": "x"}]
        told = {"role": "tool", "tool_call_id": "c1", "content": "14"}
        for messages in (asked, [*asked, told]):
            body = {"model": "m", "messages": messages}
            client.post("http://model.test/v1/chat/completions", json=body)
    with pytest.raises(IneligibleError, match="results of lookup were not recorded") as caught:
        redrive.rerun(ran.append, session.id, store=path)
    assert (caught.value.tool, caught.value.chain, ran) == ("lookup", ("lookup",), [])
    assert caught.value.exit_code == 4


def test_another_format_is_refused(stored, tmp_path):
    from redrive.cli.main import run

    case = Path(__file__).parents[2] / "cases/25-polled-identical-calls/session.jsonl"
    assert run(["--store", str(tmp_path / "s.db"), "import", str(case)]) == 0
    with _opened(tmp_path / "s.db") as store, pytest.raises(IneligibleError, match="interchange"):
        open_case(store, "s25")


def test_an_unknown_session_or_store_is_said(stored, tmp_path):
    with pytest.raises(UsageError):
        redrive.rerun(print, "nobody", store=stored.path)
    with pytest.raises(UsageError):
        redrive.rerun(print, "nobody", store=tmp_path / "none.db")


# --- commands, with a runner in the place of the sandbox ---------------------------------------


class Runner:
    """Runs the agent in this process, as the sandbox runs a command."""

    def __init__(self, stored: Stored, **end: Any) -> None:
        self.agent = load(stored.folder, AGENT)
        self.end = end
        self.variants: list[Any] = []

    def __call__(self, command: Any, backend: Any, variant: Any, stop: Any) -> CommandEnd:
        self.variants.append(variant)
        from redrive.app.rerun_serving import _call
        from redrive.capture.interception import intercept

        def run(backend: Any) -> Any:
            with intercept(backend, roots=[Path(self.agent.__file__).parent]):
                return self.agent.run(AgentSession(backend), refuse)

        _, end = _call(run, backend)
        return CommandEnd(**{"exit_code": int(end.how != "returned")} | self.end)


def test_a_command_is_run_once_and_described(stored):
    runner = Runner(stored, isolation="bubblewrap", notes=("read-only",))
    request = RerunRequest(stored.session_id, ("agent",))
    with _opened(stored.path) as store:
        document = rerun_command(store, request, runner, write_basis).document
    assert document.identical
    assert (document.control_flow, document.isolation) == ("proved", "bubblewrap")
    assert (document.agent.exit_code, document.notes) == (0, ("read-only",))
    assert len(runner.variants) == 1


def test_two_reruns_under_variants_prove_the_basis_and_write_it(tmp_path, capsysbinary):
    stored = Stored(tmp_path)
    runner = Runner(stored)
    request = RerunRequest(stored.session_id, ("agent",), prove=True)
    with _opened(stored.path) as store:
        before = store.get_session(stored.session_id).head
        document = rerun_command(store, request, runner, write_basis).document
        case = open_case(store, stored.session_id)
        assert write_basis(case) == case.session.row.head != before
        assert store.verify().is_ok
    assert runner.variants[1:] == list(VARIANTS)
    assert document.proof.basis == "proved_by_rerun"
    assert case.session.row.head in document.notes[-1]
    started = case.session.started
    assert started.basis == "proved_by_rerun"
    assert (started.captures["clock"], started.captures["prng"]) == ("captured", "captured")
    assert stored.rerun().identical

    from redrive.cli.main import run

    capsysbinary.readouterr()
    assert run(["--store", str(stored.path), "audit", "--json", stored.session_id]) in (0, 3)
    (audited,) = check(json.loads(capsysbinary.readouterr().out), "audit")["sessions"]
    assert {step["basis"] for step in audited["steps"]} == {"proved_by_rerun"}


def test_reads_that_no_one_asked_for_over_the_door_prove_nothing(stored):
    runner = Runner(stored, has_read=False)
    request = RerunRequest(stored.session_id, ("agent",), prove=True)
    with _opened(stored.path) as store:
        document = rerun_command(store, request, runner, write_basis).document
    assert document.control_flow == "not proved"
    assert document.proof.basis is None


def test_altered_evidence_stops_the_rerun_with_an_error(tmp_path, monkeypatch):
    stored = Stored(tmp_path)

    def altered(*_: object) -> bytes:
        return b"forged"

    monkeypatch.setattr("redrive.app.rerun_reading.read_artefact", altered)
    with pytest.raises(TamperError, match="not those that were recorded"):
        stored.rerun()
