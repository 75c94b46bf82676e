"""A small agent on the OpenAI SDK: three tools, a retry with jitter, and a look at the clock.

One line records it: `with redrive.record(…)`. Without that line (`--plain`) a proxy does:

    python examples/agent.py
    redrive record --model local -- python examples/agent.py --plain

The model is what OPENAI_BASE_URL names, else the local one. So small a model cannot choose freely
among tools: each step's schema offers the calls that were not made yet, and later the answers.
"""

import json
import os
import random
import sys
import time
from typing import Any

import openai

import redrive
from redrive.models.local import LocalEngine

TASK = "The nightly backup failed. Which error code do the logs show?"
SYSTEM = """You find the error code in the log files of a service.
Answer on one line, like {"tool": "look_up", "arguments": {"code": "E08"}}"""
LOGS = {"backup.log": "02:00 start\n02:14 ERROR E17 while writing", "web.log": "02:00 GET / 200"}
CODES = {"E17": "disk quota exceeded", "E42": "certificate expired"}
SAMPLING = {"temperature": 0.7, "top_p": 1, "max_tokens": 96}
DEADLINE_S = 120


def list_logs() -> list[str]:
    """List the log files."""
    return sorted(LOGS)


def read_log(name: str) -> str:
    """Read one of them."""
    return LOGS[name]


def look_up(code: str) -> str:
    """Explain an error code."""
    return CODES.get(code, "unknown code")


def shape(**fields: Any) -> dict[str, Any]:
    """Give the schema of an object with exactly these members."""
    given = {k: v if isinstance(v, dict) else {"const": v} for k, v in fields.items()}
    closed = {"required": [*given], "additionalProperties": False}
    return {"type": "object", "properties": given} | closed


def offers(done: list[tuple[str, Any]]) -> dict[str, Any]:
    """Give the schema of what may come next."""
    calls: list[tuple[str, Any]] = [("read_log", {"name": n}) for n in LOGS]
    calls = calls + [("look_up", {"code": c}) for c in CODES] if done else [("list_logs", {})]
    left = [(tool, given) for tool, given in calls if (tool, given) not in done]
    offered = [shape(tool=tool, arguments=shape(**given)) for tool, given in left]
    offered += [shape(answer=code) for code in CODES if len(done) > 2]
    return {"type": "json_schema", "json_schema": {"name": "next", "schema": {"anyOf": offered}}}


def ask(client: openai.OpenAI, messages: list[Any], done: list[tuple[str, Any]]) -> str:
    """Ask for the next decision, streamed; after an error wait a little and try again."""
    seed = random.randrange(2**31)
    request = SAMPLING | {"messages": messages, "seed": seed, "response_format": offers(done)}
    for attempt in range(5):
        try:
            chunks = client.chat.completions.create(model="smollm2", stream=True, **request)
            return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        except (openai.APIConnectionError, openai.InternalServerError):
            time.sleep(0.05 * 2**attempt + random.uniform(0, 0.05))
    raise TimeoutError("the model does not answer")


def run(client: openai.OpenAI, tools: dict[str, Any]) -> str:
    """Work until there is an answer, or the time is up."""
    started_s, done = time.monotonic(), list[tuple[str, Any]]()
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    while time.monotonic() - started_s < DEADLINE_S:
        text = ask(client, messages, done)
        decision = json.loads(text)
        if "answer" in decision:
            return str(decision["answer"])
        done.append((decision["tool"], decision["arguments"]))
        result = tools[decision["tool"]](**decision["arguments"])
        told = f"Tool result: {json.dumps(result)}\nWhat next?"
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": told}]
    return "unknown"


def main(url: str, *, is_plain: bool) -> None:
    """Run once, recorded or not."""
    options: dict[str, Any] = {"base_url": url, "max_retries": 0}
    options["api_key"] = os.environ.get("OPENAI_API_KEY", "none")
    functions = (list_logs, read_log, look_up)
    if is_plain:
        print(run(openai.OpenAI(**options), {f.__name__: f for f in functions}))
        return
    recording = redrive.record("agent", task=TASK, intercept=True, decisions="json_content")
    with recording as session:
        client = openai.OpenAI(**options, http_client=session.http_client())
        answer = run(client, {f.__name__: session.tool(effect="read_only")(f) for f in functions})
        session.end("success" if answer == "E17" else "failure")
    print(answer)


if __name__ == "__main__":
    plain = "--plain" in sys.argv
    if url := os.environ.get("OPENAI_BASE_URL"):
        main(url, is_plain=plain)
    else:
        with LocalEngine() as engine:
            main(f"{engine.url}/v1", is_plain=plain)
