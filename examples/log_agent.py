"""A small agent that really runs, and writes itself down so that redrive can replay it.

It looks for the error code in a service's log files with four harmless tools. The model is the
local one (SmolLM2-135M-Instruct, served on loopback), or any llama.cpp server::

    python examples/log_agent.py session.jsonl
    python examples/log_agent.py session.jsonl --engine-url http://127.0.0.1:8080 --task 2

What an agent must write down to be replayed later, and where this one does it:

* the exact request body of every model call, and its sampling with the seed (`_decision_line`);
* every clock and PRNG value that reaches its control flow: it looks at the clock to keep a
  deadline, and draws a new seed per step (`_read_line`);
* every tool result (`_result_line`), and what served the model (`_session_line`).

So small a model cannot choose freely among tools. The harness offers, in each step's JSON schema,
only the calls that are possible now and were not made yet.
"""

import argparse
import contextlib
import hashlib
import json
import platform
import random
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from redrive.errors import RedriveError
from redrive.models.local import LocalEngine

MODEL = "smollm2-135m-instruct-q4_1"
MAX_STEPS = 8
DEADLINE_S = 300.0
TOOLS = {
    "list_logs": "read_only",
    "read_log": "read_only",
    "look_up": "read_only",
    "finish": "pure",
}
SYSTEM = """You find the error code in the log files of a service.
Tools:
list_logs: list the log files
read_log: read one log file
look_up: explain an error code
finish: report the error code
Answer on one line, like {"tool": "look_up", "arguments": {"code": "E08"}}"""
SAMPLING = {"temperature": 0.7, "top_p": 1, "top_k": 0, "min_p": 0, "max_tokens": 96}
CODES = {"E17": "disk quota exceeded", "E42": "upstream certificate expired"}


@dataclass(frozen=True)
class Task:
    """What is asked, and the world that the tools read."""

    text: str
    logs: dict[str, str]


TASKS = (
    Task(
        "The nightly backup failed. Which error code do the logs show?",
        {
            "backup.log": "02:00 start\n02:14 ERROR E17 while writing part 3\n02:14 stop",
            "web.log": "02:00 GET /health 200\n02:10 GET /health 200",
        },
    ),
    Task(
        "The payment page is down. Which error code do the logs show?",
        {
            "cron.log": "08:00 rotate ok\n08:05 cleanup ok",
            "payment.log": "08:01 POST /pay\n08:01 ERROR E42 from gateway\n08:02 retry",
        },
    ),
)


@dataclass
class Agent:
    """One run: what was seen and done so far, and the session file that it writes."""

    task: Task
    out: IO[str]
    url: str
    fingerprint: str | None
    prng: random.Random
    messages: list[dict[str, str]]
    codes: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    knows_logs: bool = False
    has_read: bool = False
    last_id: str | None = None

    def write(self, **fields: Any) -> None:
        """Write one line; each hangs off the one before."""
        line = {"type": fields.pop("type"), "id": fields.pop("id"), "parent": self.last_id}
        line |= {"ts": datetime.now(UTC).isoformat().replace("+00:00", "Z"), **fields}
        self.out.write(json.dumps(line) + "\n")
        self.out.flush()
        self.last_id = line["id"]

    def offered(self) -> list[dict[str, Any]]:
        """Give the JSON schemas of the calls that are possible now and were not made yet."""
        choices: list[tuple[str, str, list[str]]] = [
            ("read_log", "name", sorted(self.task.logs) if self.knows_logs else []),
            ("look_up", "code", self.codes),
            ("finish", "code", [*self.codes, "unknown"] if self.has_read else []),
        ]
        schemas = [] if self.knows_logs else [_schema("list_logs", {})]
        for tool, name, values in choices:
            left = [v for v in values if _call_text(tool, {name: v}) not in self.done]
            if left:
                schemas.append(_schema(tool, {name: {"enum": left}}))
        return schemas

    def run_tool(self, tool: str, arguments: dict[str, str]) -> Any:
        """Run one tool; all of them only read this file's own data."""
        self.done.append(_call_text(tool, arguments))
        if tool == "list_logs":
            self.knows_logs = True
            return sorted(self.task.logs)
        if tool == "read_log":
            self.has_read = True
            text = self.task.logs[arguments["name"]]
            self.codes += [c for c in CODES if c in text and c not in self.codes]
            return text
        if tool == "look_up":
            return CODES[arguments["code"]]
        return {"reported": arguments["code"]}

    def decide(self, step: int, seed: int) -> str:
        """Ask the model once and write down the question and the answer, both as they were."""
        schema = {"anyOf": self.offered()}
        body = json.dumps(
            {
                "model": MODEL,
                "messages": self.messages,
                **SAMPLING,
                "seed": seed,
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "decision", "schema": schema},
                },
            }
        )
        answer = _post(f"{self.url}/v1/chat/completions", body)
        usage = answer["usage"]
        details = usage.get("prompt_tokens_details", {})
        text = answer["choices"][0]["message"]["content"]
        self.write(
            type="decision",
            id=f"d{step}",
            step=step,
            model={"requested": MODEL, "served": answer["model"], "fingerprint": self.fingerprint},
            sampling=SAMPLING | {"seed": seed},
            request={"api": "openai.chat", "body": body},
            usage={
                "prompt_tokens": usage["prompt_tokens"],
                "completion_tokens": usage["completion_tokens"],
                "cache_read_tokens": details.get("cached_tokens"),
            },
            output={"text": text, "tool_calls": []},
        )
        return str(text)

    def read(self, step: int, kind: str, name: str, value: float) -> None:
        """Write down a clock or PRNG value that reached the control flow of this step."""
        self.write(type="read", id=f"{kind}{step}", step=step, kind=kind, name=name, value=value)

    def run(self) -> bool:
        """Run until `finish`, the last step or the deadline; say whether it finished."""
        started_s = time.monotonic()
        for step in range(1, MAX_STEPS + 1):
            elapsed_s = time.monotonic() - started_s
            if elapsed_s > DEADLINE_S:
                return False
            seed = self.prng.randrange(2**31)
            text = self.decide(step, seed)
            self.read(step, "clock", "elapsed_s", elapsed_s)
            self.read(step, "prng", "seed", seed)
            try:
                decision = json.loads(text)
            except ValueError:
                return False
            tool, arguments = decision["tool"], decision["arguments"]
            result = self.run_tool(tool, arguments)
            self.write(
                type="tool_result",
                id=f"t{step}",
                call_id=f"d{step}",
                name=tool,
                status="ok",
                result=result,
            )
            if tool == "finish":
                return True
            self.messages += [
                {"role": "assistant", "content": text},
                {"role": "user", "content": f"Tool result: {json.dumps(result)}\nNext tool?"},
            ]
        return False


def _schema(tool: str, properties: dict[str, Any]) -> dict[str, Any]:
    arguments = {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"tool": {"const": tool}, "arguments": arguments},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }


def _call_text(tool: str, arguments: dict[str, str]) -> str:
    return json.dumps([tool, arguments], sort_keys=True)


def _post(url: str, body: str) -> dict[str, Any]:
    """Post a body to the model's server; no proxy, so that loopback stays loopback."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(  # noqa: S310 - the URL is the user's own argument
        url, data=body.encode(), headers={"content-type": "application/json"}
    )
    with opener.open(request, timeout=DEADLINE_S) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def _environment(task: Task, engine: dict[str, Any]) -> dict[str, Any]:
    """Describe what could change the run beside the model's answers."""
    world = json.dumps([task.logs, CODES], sort_keys=True)
    return {
        "agent_sha256": hashlib.sha256(Path(__file__).read_bytes()).hexdigest(),
        "logs_sha256": hashlib.sha256(world.encode()).hexdigest(),
        "python": platform.python_version(),
        **({"engine": engine} if engine else {}),
    }


def run_session(
    out: IO[str], task_number: int, prng_seed: int, url: str, engine: LocalEngine | None
) -> bool:
    """Run the agent once and write its session, line by line as it happens.

    Args:
        out: text file for the interchange lines.
        task_number: 1 or 2.
        prng_seed: seed of the agent's own PRNG, from which it draws each step's seed.
        url: base URL of the model's server.
        engine: the engine behind it, where this process started it and can identify it.
    """
    task = TASKS[task_number - 1]
    agent = Agent(
        task=task,
        out=out,
        url=url,
        fingerprint=engine.fingerprint if engine else None,
        prng=random.Random(prng_seed),
        messages=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"{task.text}\nNext tool?"},
        ],
    )
    session = {
        "type": "session",
        "id": f"log-agent-{task_number}-{prng_seed}",
        "task": task.text,
        "agent": "log_agent",
        "tools": TOOLS,
        "decisions": "json_content",
        "captures": dict.fromkeys(
            ("context", "tool_results", "sampling", "clock", "prng", "environment"), "captured"
        ),
        "environment": _environment(task, engine.details if engine else {}),
    }
    out.write(json.dumps(session) + "\n")
    is_finished = agent.run()
    agent.write(type="end", id="end", status="success" if is_finished else "failure")
    return is_finished


@contextlib.contextmanager
def _engine_at(url: str | None) -> Iterator[tuple[str, LocalEngine | None]]:
    """Use the server at `url`, or start the local engine for the time being."""
    if url:
        yield url.rstrip("/").removesuffix("/v1"), None
    else:
        with LocalEngine() as engine:
            yield engine.url, engine


def main() -> int:
    """Run the agent from the command line; 0 where it finished its task."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="where the session is written")
    parser.add_argument("--engine-url", help="a llama.cpp server; default: the local model")
    parser.add_argument("--task", type=int, choices=range(1, len(TASKS) + 1), default=1)
    parser.add_argument("--seed", type=int, help="seed of the agent's PRNG; default: a new one")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    try:
        with _engine_at(options.engine_url) as (url, engine), options.out.open("w") as out:
            is_finished = run_session(out, options.task, seed, url, engine)
    except RedriveError as error:
        print(f"{error.message}; {error.hint}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"the model's server does not answer: {error}", file=sys.stderr)
        return 1
    return 0 if is_finished else 1


if __name__ == "__main__":
    sys.exit(main())
