"""A small agent on the OpenAI SDK: three tools, a retry with jitter, and a look at the clock.

One line records it: `with redrive.record(…)`. Without that line (`--plain`), a proxy can:

    python examples/agent.py
    redrive record --model local -- python examples/agent.py --plain

The model is whatever OPENAI_BASE_URL names, else the local one. So small a model cannot choose
freely among tools: each step's schema offers the calls that were not made yet.
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
DEADLINE_S = 120


def list_logs() -> list[str]:
    return sorted(LOGS)


def read_log(name: str) -> str:
    return LOGS[name]


def look_up(code: str) -> str:
    return CODES.get(code, "unknown code")


def offers(done: list[str]) -> dict[str, Any]:
    """Give the schema of what may come next: a call that was not made yet, or the answer."""
    calls = [("list_logs", {})] if not done else [("read_log", {"name": name}) for name in LOGS]
    calls += [("look_up", {"code": code}) for code in CODES] if len(done) > 1 else []
    shapes = [shape({"tool": tool, "arguments": shape(given)}) for tool, given in calls
              if json.dumps([tool, given]) not in done]  # fmt: skip
    answers = [shape({"answer": code}) for code in CODES] if len(done) > 2 else []
    return {"type": "json_schema", "json_schema": {"name": "next", "schema": {"anyOf": shapes + answers}}}  # fmt: skip


def shape(fields: dict[str, Any]) -> dict[str, Any]:
    given = {k: v if isinstance(v, dict) else {"const": v} for k, v in fields.items()}
    return {"type": "object", "properties": given, "required": [*given], "additionalProperties": False}  # fmt: skip


def ask(client: openai.OpenAI, messages: list[Any], done: list[str]) -> str:
    """Ask for the next decision, streamed; after an error wait and try again."""
    seed = random.randrange(2**31)
    for attempt in range(5):
        try:
            chunks = client.chat.completions.create(
                model="smollm2-135m-instruct-q4_1", messages=messages, stream=True, seed=seed,
                temperature=0.7, top_p=1, max_tokens=96, response_format=offers(done),
                extra_body={"top_k": 0, "min_p": 0},
            )  # fmt: skip
            return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        except (openai.APIConnectionError, openai.InternalServerError):
            time.sleep(0.05 * 2**attempt + random.uniform(0, 0.05))
    raise TimeoutError("the model does not answer")


def run(client: openai.OpenAI, tools: dict[str, Any]) -> str:
    """Work until there is an answer, or the time is up."""
    started_s, done = time.monotonic(), []
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    while time.monotonic() - started_s < DEADLINE_S:
        text = ask(client, messages, done)
        decision = json.loads(text)
        if "answer" in decision:
            return decision["answer"]
        result = tools[decision["tool"]](**decision["arguments"])
        done.append(json.dumps([decision["tool"], decision["arguments"]]))
        told = f"Tool result: {json.dumps(result)}\nWhat next?"
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": told}]
    return "unknown"


def main(url: str, plain: bool) -> None:
    key = os.environ.get("OPENAI_API_KEY", "none")
    functions = [list_logs, read_log, look_up]
    if plain:
        client = openai.OpenAI(base_url=url, api_key=key, max_retries=0)
        print(run(client, {f.__name__: f for f in functions}))
        return
    with redrive.record("log-agent", task=TASK, intercept=True, decisions="json_content") as session:
        client = openai.OpenAI(base_url=url, api_key=key, max_retries=0, http_client=session.http_client())  # fmt: skip
        answer = run(client, {f.__name__: session.tool(effect="read_only")(f) for f in functions})
        session.end("success" if answer == "E17" else "failure")
    print(answer)


if __name__ == "__main__":
    if url := os.environ.get("OPENAI_BASE_URL"):
        main(url, "--plain" in sys.argv)
    else:
        with LocalEngine() as engine:
            main(f"{engine.url}/v1", "--plain" in sys.argv)
