"""The example agent's session is closed, and each input it writes down is needed for that."""

import importlib.util
import io
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from redrive.audit.closure import audit
from redrive.audit.report import AuditReport
from redrive.importers.interchange import IMPORTER
from redrive.record.event import payload_of
from redrive.record.session import MemoryReader
from redrive.record.trajectory import build_trajectory
from tests.helpers import events_from, index_of

AGENT = Path(__file__).resolve().parent.parent.parent / "examples" / "log_agent.py"
N_STEPS = 5

Line = dict[str, Any]
Mutation = Callable[[dict[str, Line], int], None]


def answer_to(body: Line) -> str:
    """Decide as an obedient model would: the first call that the schema offers."""
    schema = body["response_format"]["json_schema"]["schema"]["anyOf"][0]["properties"]
    arguments = {
        name: values["enum"][0] for name, values in schema["arguments"]["properties"].items()
    }
    return json.dumps({"tool": schema["tool"]["const"], "arguments": arguments})


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = {
            "model": body["model"],
            "choices": [{"message": {"content": answer_to(body)}, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": 5,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 0},
            },
        }
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def load_agent() -> ModuleType:
    spec = importlib.util.spec_from_file_location("log_agent", AGENT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def session() -> list[Line]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    out = io.StringIO()
    url = f"http://127.0.0.1:{http.server_address[1]}"
    assert load_agent().run_session(out, 1, 7, url, None)
    http.shutdown()
    http.server_close()
    thread.join()
    return [json.loads(line) for line in out.getvalue().splitlines()]


def audited(lines: list[Line]) -> AuditReport:
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    events = events_from(IMPORTER, AGENT, data)
    index = index_of(events)
    return audit(
        index,
        build_trajectory(index),
        MemoryReader(events),
        session_started=payload_of(events[0]),
        renderers={},
    )


def test_the_session_is_closed_in_every_step(session: list[Line]) -> None:
    report = audited(session)
    assert report.is_closed
    assert len(report.steps) == N_STEPS


def test_the_agent_draws_a_new_seed_per_step_and_sends_it(session: list[Line]) -> None:
    bodies = [json.loads(line["request"]["body"]) for line in session if "request" in line]
    drawn = [line["value"] for line in session if line.get("kind") == "prng"]
    assert [body["seed"] for body in bodies] == drawn
    assert len(set(drawn)) == N_STEPS


def forget_request(lines: dict[str, Line], step: int) -> None:
    del lines[f"d{step}"]["request"]


def forget_seed(lines: dict[str, Line], step: int) -> None:
    line = lines[f"d{step}"]
    del line["sampling"]["seed"]
    body = json.loads(line["request"]["body"])
    del body["seed"]
    line["request"]["body"] = json.dumps(body)


def forget_result(lines: dict[str, Line], step: int) -> None:
    del lines[f"t{step}"]["result"]


def forget_clock(lines: dict[str, Line], step: int) -> None:
    del lines[f"clock{step}"]["value"]


def forget_draw(lines: dict[str, Line], step: int) -> None:
    del lines[f"prng{step}"]["value"]


@pytest.mark.parametrize("step", range(1, N_STEPS + 1))
@pytest.mark.parametrize(
    ("mutate", "input_class"),
    [
        (forget_request, "input"),
        (forget_seed, "sampling"),
        (forget_result, "environment"),
        (forget_clock, "clock"),
        (forget_draw, "prng"),
    ],
)
def test_one_input_less_opens_exactly_its_step_and_class(
    session: list[Line], mutate: Mutation, input_class: str, step: int
) -> None:
    lines = json.loads(json.dumps(session))
    mutate({line["id"]: line for line in lines}, step)
    report = audited(lines)
    found = [(s.step, gap.input_class.value) for s in report.steps for gap in s.missing]
    assert found == [(step, input_class)]
    assert report.closed_until == step - 1
