"""Shadow replays whose model answers over HTTP or in Python: what it is sent, and what it gets."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

FIRST = (
    '{"model": "m-1",  "messages": [{"role":"user","content":"What is 0.1+0.2?"}],'
    '"temperature":0.70,"seed":17 , "stream":false}'
)
SECOND = (
    '{"model":"m-1","messages":[{"role":"user","content":"What is 0.1+0.2?"},'
    '{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":'
    '{"name":"add","arguments":"{\\"a\\": 0.1, \\"b\\": 0.2}"}}]},'
    '{"role":"tool","tool_call_id":"c1","content":"0.30000000000000004"}],'
    '"temperature":0.70,"seed":17}'
)
CALL = {"name": "add", "args_json": '{"a": 0.1, "b": 0.2}', "call_id": "c1"}


def decision(name, parent, body, output):
    return {
        "type": "decision",
        "id": name,
        "parent": parent,
        "model": {"requested": "m-1", "served": "m-1"},
        "sampling": {"temperature": 0.7, "seed": 17},
        "request": {"api": "openai.chat", "body": body},
        "output": output,
    }


@pytest.fixture
def recorded(redrive, tmp_path):
    """A store with one closed session of two decisions, `sum`."""
    lines = [
        {"type": "session", "id": "sum", "task": "What is 0.1+0.2?"},
        decision("d1", None, FIRST, {"text": "", "tool_calls": [CALL]}),
        {
            "type": "tool_result",
            "id": "r1",
            "parent": "d1",
            "call_id": "c1",
            "name": "add",
            "status": "ok",
            "result": 0.30000000000000004,
        },
        decision("d2", "r1", SECOND, {"text": "About 0.3.", "tool_calls": []}),
        {"type": "end", "id": "e", "parent": "d2", "status": "success"},
    ]
    path = tmp_path / "sum.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    redrive.imported(path)
    return redrive


class Endpoint:
    """A chat endpoint on loopback that answers from a list and keeps what it was sent."""

    def __init__(self):
        self.bodies = []
        self.answers = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                size = int(self.headers["Content-Length"])
                endpoint.bodies.append(self.rfile.read(size).decode())
                data = json.dumps(endpoint.answers.pop(0)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.spec = f"openai:@http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def says(self, *messages):
        self.answers += [
            {"model": "m-1", "choices": [{"message": m, "finish_reason": "stop"}]} for m in messages
        ]


@pytest.fixture
def endpoint():
    made = Endpoint()
    yield made
    made.server.shutdown()
    made.server.server_close()


def call(arguments='{"a": 0.1, "b": 0.2}', name="add"):
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "x9", "type": "function", "function": {"name": name, "arguments": arguments}}
        ],
    }


SAID = {"role": "assistant", "content": "About 0.3."}


def test_with_recorded_sampling_the_recorded_bytes_are_sent_again(recorded, endpoint):
    endpoint.says(call(), SAID)
    document = recorded.json("shadow", "sum", "--model", endpoint.spec, "--sampling", "recorded")
    assert endpoint.bodies == [FIRST, SECOND]
    assert document["verdict"] == "IDENTICAL_REPLAY"
    assert document["overrides"] == []
    assert document["attribution"] == "one_run"
    assert document["runs"][0]["ignored"]["call_id"] == 1


def test_without_it_one_value_alone_is_replaced_and_reported(recorded, endpoint):
    endpoint.says(call(), SAID)
    document = recorded.json("shadow", "sum", "--model", endpoint.spec, "--seed", "5")
    assert endpoint.bodies == [
        body.replace('"temperature":0.70', '"temperature":0').replace('"seed":17', '"seed":5')
        for body in (FIRST, SECOND)
    ]
    assert document["overrides"] == [
        {"name": "temperature", "value": 0},
        {"name": "seed", "value": 5},
    ]
    assert document["attribution"] == "sampling_overridden"


def test_another_model_name_is_an_override_too(recorded, endpoint):
    endpoint.says(call(), SAID)
    spec = endpoint.spec.replace("openai:@", "openai:m-2@")
    document = recorded.json("shadow", "sum", "--model", spec, "--sampling", "recorded")
    assert endpoint.bodies[0] == FIRST.replace('"m-1"', '"m-2"')
    assert document["overrides"] == [{"name": "model", "value": "m-2"}]


def test_after_a_difference_the_request_is_rebuilt_and_marked(recorded, endpoint):
    endpoint.says(call(), call(), SAID)
    document = recorded.json(
        "shadow", "sum", "--model", endpoint.spec, "--sampling", "recorded", code=3
    )
    (run,) = document["runs"]
    assert run["missing_call"]["why"] == "used_up"
    assert run["first_divergence"]["decision"] == 2
    assert endpoint.bodies == [FIRST, SECOND]

    endpoint.bodies.clear()
    endpoint.answers.clear()
    endpoint.says(call() | {"content": "Let me add."}, SAID)
    document = recorded.json("shadow", "sum", "--model", endpoint.spec, "--sampling", "recorded")
    (run,) = document["runs"]
    assert (run["rebuilt"], run["text_only"]) == (1, 1)
    rebuilt = json.loads(endpoint.bodies[1])
    assert rebuilt["seed"] == 17
    assert [message["role"] for message in rebuilt["messages"]] == ["user", "assistant", "tool"]
    assert rebuilt["messages"][1]["content"] == "Let me add."
    assert rebuilt["messages"][2]["content"] == "0.30000000000000004"


def test_seed_and_recorded_sampling_exclude_each_other(recorded):
    done = recorded("shadow", "sum", "--model", "script:x", "--sampling", "recorded", "--seed", "1")
    assert done.code == 2


def test_two_runs_give_the_same_bytes(recorded, endpoint):
    outputs = []
    for _ in range(2):
        endpoint.says(call(), SAID)
        outputs.append(recorded("shadow", "sum", "--model", endpoint.spec, "--json").out)
    assert outputs[0] == outputs[1]


def test_complete_reads_the_recorded_text_and_a_step_function_the_history(recorded, tmp_path):
    (tmp_path / "m.py").write_text(
        "import json, pathlib\n"
        "SEEN = pathlib.Path(__file__).with_name('seen.jsonl')\n"
        "def complete(prompt, config):\n"
        "    with SEEN.open('a') as f: f.write(json.dumps([prompt, config]) + '\\n')\n"
        "    if 'tool_call_id' in prompt: return 'About 0.3.'\n"
        "    return {'tool': 'add', 'arguments': {'b': 0.2, 'a': 0.1}}\n"
        "def step(messages):\n"
        "    with SEEN.open('a') as f: f.write(json.dumps(messages) + '\\n')\n"
        "    if messages[-1]['role'] == 'tool':\n"
        "        messages.clear()\n"
        "        return {'text': 'About 0.3.', 'final': True}\n"
        "    messages[0]['content'] = 'changed'\n"
        "    return {'tool': 'add', 'arguments': {'b': 0.2, 'a': 0.1}}\n"
    )
    seen = tmp_path / "seen.jsonl"
    document = recorded.json("shadow", "sum", "--model", f"python:{tmp_path / 'm.py'}:complete")
    assert document["verdict"] == "IDENTICAL_REPLAY"
    prompts = [json.loads(line) for line in seen.read_text().splitlines()]
    assert [config["temperature"] for _, config in prompts] == [0, 0]
    seen.unlink()
    document = recorded.json("shadow", "sum", "--model", f"python:{tmp_path / 'm.py'}:step")
    assert document["verdict"] == "IDENTICAL_REPLAY"
    first, second = (json.loads(line) for line in seen.read_text().splitlines())
    assert first == [{"role": "user", "content": "What is 0.1+0.2?"}]
    assert second[0] == first[0], "what a model did to its history is not seen again"
    assert second[-1]["content"] == 0.30000000000000004


def test_a_reconstruction_is_built_of_the_history_and_proves_nothing(
    redrive, endpoint, cases, tmp_path
):
    redrive.imported(cases / "09-rewind-dead-branch/session.jsonl")
    (tmp_path / "system.txt").write_text("You are brief.")
    (tmp_path / "tools.json").write_text('[{"type":"function","function":{"name":"Edit"}}]')
    endpoint.says({"role": "assistant", "content": "no"})
    document = redrive.json(
        "shadow",
        "5e55",
        "--model",
        endpoint.spec,
        "--reconstruct",
        "--system",
        tmp_path / "system.txt",
        "--tools",
        tmp_path / "tools.json",
        code=3,
    )
    assert document["mode"] == "reconstruction"
    assert document["verdict"] == "INSUFFICIENT_EVIDENCE"
    assert document["attribution"] == "provenance_gap"
    (run,) = document["runs"]
    assert run["first_divergence"]["decision"] == 1
    (body,) = (json.loads(text) for text in endpoint.bodies)
    assert body["messages"][0] == {"role": "system", "content": "You are brief."}
    assert body["messages"][1]["role"] == "user"
    assert body["tools"][0]["function"]["name"] == "Edit"
    assert body["model"] == "model-x"


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        (("--system", "system.txt"), 2),
        (("--reconstruct", "--system", "nowhere"), 2),
        (("--reconstruct", "--tools", "system.txt"), 6),
        (("--reconstruct", "--tools", "object.json"), 6),
        (("--reconstruct", "--system", "latin.txt"), 6),
    ],
)
def test_files_beside_a_recording_are_checked(redrive, cases, tmp_path, extra, code):
    redrive.imported(cases / "09-rewind-dead-branch/session.jsonl")
    (tmp_path / "system.txt").write_text("You are brief.")
    (tmp_path / "object.json").write_text("{}")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    done = redrive("shadow", "5e55", "--model", "script:x", *extra)
    assert done.code == code
    assert done.err.count("\n") == 1


def test_nothing_can_be_built_where_nothing_that_was_said_is_recorded(redrive, endpoint, cases):
    redrive.imported(cases / "19-otlp-content-capture-off/trace.json")
    done = redrive("shadow", "all-of-it", "--model", endpoint.spec, "--reconstruct")
    assert done.code == 2
    name = redrive.json("sessions")["sessions"][0]["session_id"]
    done = redrive("shadow", name, "--model", endpoint.spec, "--reconstruct")
    assert done.code == 2
    assert "no request can be built" in done.err
    assert endpoint.bodies == []
