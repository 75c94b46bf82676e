"""The models of a plan are opened by their specs, and each run begins with its own script."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from msgspec.structs import replace

from redrive.app.trial_models import (
    InProcess,
    check_models,
    fresh_models,
    open_models,
    prepare_request,
)
from redrive.app.trial_ports import OpenedModel
from redrive.capture.ports import SentRequest, ServedAnswer
from redrive.errors import PluginError, UsageError
from redrive.models.local import EngineOptions
from redrive.replay.token_usage import read_usage
from redrive.replay.trial_plan import PlanModel
from redrive.replay.trial_values import Usage
from tests.trials import MODEL, chat_request

SCRIPT = "".join(json.dumps({"text": f"line {n}"}) + "\n" for n in range(3))


def opened(spec: str, caller: Mapping[str, str] | None = None, **changed: Any) -> OpenedModel:
    model: PlanModel = replace(MODEL, spec=spec, **changed)
    with open_models([model], caller or {}) as (one,):
        return one


def ask(model: OpenedModel, request: SentRequest | None = None) -> ServedAnswer:
    assert model.answer is not None
    return model.answer.answer(request or chat_request("x"))


def text_of(answer: ServedAnswer) -> str:
    message: str = json.loads(answer.body)["choices"][0]["message"]["content"]
    return message


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.jsonl"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def python(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(
        "def step(messages):\n"
        "    if messages[-1]['content'] == 'fail':\n"
        "        raise KeyError('no')\n"
        "    return {'text': f'{len(messages)} messages', 'final': True}\n"
    )
    return path


# --- endpoints


def test_an_endpoint_is_reached_with_the_key_that_the_plan_names() -> None:
    model = opened("openai:gpt@https://api.example/v1", {"MY_KEY": "k1"}, key_env="MY_KEY")
    assert (model.url, model.api, model.asks) == ("https://api.example/v1", "openai", "gpt")
    assert model.headers == (("authorization", "Bearer k1"),)
    assert model.answer is None
    other = opened("anthropic:c@https://api.example/v1", {"MY_KEY": "k1"}, key_env="MY_KEY")
    assert (other.url, other.api, other.asks) == ("https://api.example", "anthropic", "c")
    assert other.headers == (("x-api-key", "k1"), ("anthropic-version", "2023-06-01"))


def test_an_endpoint_without_a_key_gets_none_whatever_the_environment_holds() -> None:
    caller = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    assert opened("openai:small@http://127.0.0.1:1", caller).headers == ()
    headers = opened("anthropic:small@http://127.0.0.1:1", caller).headers
    assert headers == (("anthropic-version", "2023-06-01"),)


def test_an_endpoint_that_calls_the_model_as_the_plan_does_is_sent_the_request_as_it_is() -> None:
    for spec in ("openai:small@http://127.0.0.1:1", "openai:@http://127.0.0.1:1"):
        model = opened(spec)
        assert (model.url, model.asks) == ("http://127.0.0.1:1/v1", "")


@pytest.mark.parametrize("caller", [{}, {"MY_KEY": ""}])
def test_a_key_that_is_not_there_is_named(caller: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="needs the key in MY_KEY, which is not set"):
        opened("openai:gpt@https://api.example", caller, key_env="MY_KEY")


def test_a_key_that_would_break_a_header_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError, match="cannot stand in a header") as caught:
        opened("openai:gpt@https://api.example", {"MY_KEY": "k\r\nx: y"}, key_env="MY_KEY")
    assert "x: y" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("", "without a kind"),
        ("nothing:x", "no model named 'nothing'"),
        ("openai:gpt", "no NAME@URL"),
        ("script:/none.jsonl", "cannot read the script"),
        ("python:/none.py:step", "no such file"),
        ("local:n_none=1", "local: "),
    ],
)
def test_a_spec_that_cannot_be_opened_is_refused(spec: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        opened(spec)


# --- the local engine


class FakeEngine:
    """Counts what is started and stopped."""

    started: list[EngineOptions]
    n_stopped = 0

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        self.url = f"http://127.0.0.1:{40000 + options.n_threads}"
        self.fingerprint = f"sha256:{options.n_threads}"

    def __enter__(self) -> Self:
        FakeEngine.started.append(self.options)
        return self

    def __exit__(self, *_: object) -> None:
        FakeEngine.n_stopped += 1


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> type[FakeEngine]:
    FakeEngine.started, FakeEngine.n_stopped = [], 0
    monkeypatch.setattr("redrive.app.trial_models.LocalEngine", FakeEngine)
    return FakeEngine


def test_equal_local_models_share_an_engine_that_ends_with_the_trial(
    engines: type[FakeEngine],
) -> None:
    specs = ("local", "local:n_threads=1", "local:n_threads=2")
    with open_models([replace(MODEL, spec=spec) for spec in specs], {}) as models:
        assert [model.url for model in models] == [
            "http://127.0.0.1:40001/v1",
            "http://127.0.0.1:40001/v1",
            "http://127.0.0.1:40002/v1",
        ]
        assert [model.fingerprint for model in models] == ["sha256:1", "sha256:1", "sha256:2"]
        assert engines.n_stopped == 0
    assert (len(engines.started), engines.n_stopped) == (2, 2)


def test_an_engine_is_stopped_where_a_later_model_cannot_be_opened(
    engines: type[FakeEngine],
) -> None:
    models = [replace(MODEL, spec=spec) for spec in ("local", "script:/none")]
    with pytest.raises(UsageError), open_models(models, {}):
        pytest.fail("nothing is opened")
    assert (len(engines.started), engines.n_stopped) == (1, 1)


# --- scripts


def test_a_script_begins_anew_for_each_run(script: Path) -> None:
    model = opened(f"script:{script}")
    for number in (0, 1):
        (own,) = fresh_models([model], number)
        assert [text_of(ask(own)) for _ in range(3)] == ["line 0", "line 1", "line 2"]


def test_a_run_that_is_made_again_goes_on_behind_the_answers_it_is_given(script: Path) -> None:
    (own,) = fresh_models([opened(f"script:{script}")], 0, {"small": 2, "other": 1})
    answer = ask(own)
    assert text_of(answer) == "line 2"
    assert json.loads(answer.body)["id"].endswith("_3")
    (done,) = fresh_models([opened(f"script:{script}")], 0, {"small": 9})
    assert ask(done).status == 500


def test_a_folder_has_a_script_for_each_run(tmp_path: Path) -> None:
    for number in range(2):
        line = json.dumps({"text": f"run {number}"})
        (tmp_path / f"shadow-{number}.jsonl").write_text(line)
    model = opened(f"script:{tmp_path}")
    assert [text_of(ask(*fresh_models([model], number))) for number in (1, 0)] == ["run 1", "run 0"]
    with pytest.raises(UsageError, match="2 scripts"):
        check_models([model], 2)
    (late,) = fresh_models([model], 2)  # a run that never asks it lacks nothing
    assert "2 scripts" in json.loads(ask(late).body)["error"]["message"]


def test_a_script_that_runs_out_is_a_failed_model(script: Path) -> None:
    (own,) = fresh_models([opened(f"script:{script}")], 0)
    answers = [ask(own) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 500]
    assert "the script ran out" in json.loads(answers[3].body)["error"]["message"]


def test_models_with_an_endpoint_are_every_runs_alike() -> None:
    model = opened("openai:small@http://127.0.0.1:1")
    assert fresh_models([model], 5) == (model,)


# --- python


def test_a_python_model_answers_in_the_form_of_the_api(python: Path) -> None:
    model = opened(f"python:{python}:step")
    answer = ask(model)
    assert (answer.status, text_of(answer)) == (200, "1 messages")
    streamed = ask(model, chat_request("x", stream=True))
    assert streamed.headers == (("content-type", "text/event-stream"),)
    assert streamed.body.endswith(b"data: [DONE]\n\n")
    said = [{"role": "user", "content": "x"}]
    body = json.dumps({"model": "small", "input": said, "max_output_tokens": 9}).encode()
    response = ask(model, SentRequest("POST", "http://m/v1/responses", (), body, 0))
    assert json.loads(response.body)["object"] == "response"


def test_a_python_model_that_raises_is_a_failed_model(python: Path) -> None:
    answer = ask(opened(f"python:{python}:step"), chat_request("fail"))
    assert answer.status == 500
    assert "KeyError" in json.loads(answer.body)["error"]["message"]
    with pytest.raises(PluginError):
        opened(f"python:{python}:missing")


def test_a_request_that_is_no_text_or_asks_no_model_is_answered_with_a_failure(
    python: Path,
) -> None:
    model = opened(f"python:{python}:step")
    url = "http://m/v1/chat/completions"
    assert ask(model, SentRequest("POST", url, (), b"\xff", 0)).status == 500
    assert ask(model, SentRequest("GET", url, (), b"{}", 0)).status == 500


def test_runs_that_ask_at_the_same_time_ask_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "import time\n"
        "busy = []\n"
        "def step(messages):\n"
        "    busy.append(1)\n"
        "    seen = len(busy)\n"
        "    time.sleep(0.01)\n"
        "    busy.pop()\n"
        "    return {'text': str(seen)}\n"
    )
    model = opened(f"python:{path}:step")
    said: list[str] = []

    def work(number: int) -> None:
        (own,) = fresh_models([model], number)
        said.extend(text_of(ask(own)) for _ in range(3))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == ["1"] * 12


# --- tokens


def test_tokens_that_a_model_does_not_tell_are_counted_within_the_requests_bound(
    tmp_path: Path,
) -> None:
    path = tmp_path / "script.jsonl"
    call = {"name": "read", "args": {"path": "a.txt"}}
    lines = [{"text": "a" * 10}, {"text": "a" * 999}, {"text": "\ud83d"}, {"tool_calls": [call]}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (own,) = fresh_models([opened(f"script:{path}")], 0)
    request = chat_request("x")
    usages = [read_usage(ask(own, request).body) for _ in lines]
    n_input = -(-len(request.body) // 4)
    assert usages == [Usage(n_input, n) for n in (3, 16, 1, 5)]


def test_tokens_that_a_model_tells_are_believed(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "from redrive.replay.ports import ModelReply\n"
        "class Model:\n"
        "    def decide(self, query):\n"
        "        return ModelReply('x', usage={'prompt_tokens': 7, 'completion_tokens': 99})\n"
        "model = Model()\n"
    )
    assert read_usage(ask(opened(f"python:{path}:model")).body) == Usage(7, 99)


# --- what is sent


def test_a_request_is_bounded_and_names_the_model_as_its_endpoint_does() -> None:
    model = opened("openai:gpt@http://127.0.0.1:1")
    plain = chat_request("x", max_tokens=None)
    plain = replace(plain, headers=(("content-length", "9"), ("accept", "*/*")), added=("seed",))
    sent = prepare_request(model, plain)
    assert sent.added == ("seed", "max_tokens")
    assert sent.headers == (("content-length", str(len(sent.body))), ("accept", "*/*"))
    assert json.loads(sent.body) == {**json.loads(plain.body), "model": "gpt", "max_tokens": 16}


def test_a_request_that_is_ready_is_sent_as_it_is() -> None:
    model = opened("openai:small@http://127.0.0.1:1")
    bounded = chat_request("x", max_tokens=5)
    assert prepare_request(model, bounded) == bounded


def test_a_request_that_cannot_be_bounded_is_left_as_it_is() -> None:
    model = opened("openai:gpt@http://127.0.0.1:1")
    requests = [chat_request("x", max_tokens=-1), chat_request("x", n=0)]
    requests += [replace(requests[0], body=b"nonsense"), replace(requests[0], method="GET")]
    for request in requests:
        assert prepare_request(model, request) == request


def test_an_in_process_model_is_opened_at_the_first_question_of_a_run() -> None:
    opened_for: list[tuple[int, int]] = []

    class Silent:
        spec, reads_context, apis = "silent", True, ()

    def open_at(number: int, n_before: int) -> Any:
        opened_for.append((number, n_before))
        return Silent()

    run = InProcess(open_at).fresh(3, 2).fresh(4, 0)
    assert opened_for == []
    assert run.open() is run.open()
    assert opened_for == [(4, 0)]
