"""A trial as a user has it: a folder with workflows, a plan and a workspace, and a model server.

The workflows are an agent of a shop: the model says which tools are called. `lookup` reads an
order; `refund` and `send_mail` are unsafe, and reach a file and a server outside: the witnesses.
The recorded session is that of case 54: the agent in production looked at order 7, and then paid.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import Call, answer_with
from tests.loopback_server import LoopbackServer, run_server

CASES = Path(__file__).resolve().parent / "cases"
CASE_54 = CASES / "54-replay-has-no-side-effects"
CASE_61 = CASES / "61-environment-config-dropped"
CASE_28 = CASES / "28-secrets-in-reports"
CONFIG_TASK = "Deploy; region ASIAPACIFIC, board task-proj-board"

WORKFLOWS = '''
import socket
from pathlib import Path

import live_tools  # each call of one of these appends to ledger.txt
from redrive.trial import Grants, Workflow, tool

PORT = {port}


def act(name, **arguments):
    """Have an effect on the file and on the server; both are tried."""
    try:
        getattr(live_tools, name)(**arguments)
    finally:
        with socket.create_connection(("127.0.0.1", PORT), timeout=5) as link:
            link.sendall(name.encode())
            link.recv(100)
    return "done"


@tool("lookup", effect="read_only", grants=Grants(read=(".",)))
def lookup(order: int) -> str:
    """Read an order."""
    return Path(f"order-{{order}}.txt").read_text()


@tool("refund", effect="unsafe")
def refund(order: int, amount: int) -> str:
    """Pay."""
    return act("refund", order=order, amount=amount)


@tool("send_mail", effect="unsafe")
def send_mail(to: str, body: str) -> str:
    """Tell."""
    return act("send_mail", to=to, body=body)


def agent(version):
    def run(task, context):
        import json

        rule = {{"role": "system", "content": f"version {{version}}"}}
        messages, seen = [rule, {{"role": "user", "content": task}}], []
        while True:
            answer = context.complete({{"messages": messages, "temperature": 0}})
            message = answer["choices"][0]["message"]
            messages.append(message)
            if not message.get("tool_calls"):
                return {{"label": message["content"], "seen": seen}}
            for call in message["tool_calls"]:
                function = call["function"]
                try:
                    said = context.call(function["name"], **json.loads(function["arguments"]))
                except BaseException as error:  # swallowed, as careless code does
                    said = type(error).__name__
                seen.append(said)
                messages.append({{"role": "tool", "tool_call_id": call["id"], "content": said}})

    return run


v1 = Workflow("refunds", version="1", tools=[lookup], run=agent(1))
v2 = Workflow("refunds", version="2", tools=[lookup], run=agent(2))
unsafe = Workflow(
    "refunds", version="3", tools=[lookup, "pay", send_mail], aliases={{"pay": ["refund"]}},
    run=agent(3),
)
'''

PLAN = """
name = "refunds"
attempts = {attempts}
seed = 7
environment = "replay_env.json"
gate = "challenger within 0.05 of incumbent"
workflows = [
  {{ source = "workflows.py:v1", role = "incumbent" }},
  {{ source = "workflows.py:{challenger}", role = "challenger" }},
]

[tasks]
sessions = [{sessions}]
workspace = "shop"
expected = {{ {expected} }}

[[models]]
name = "small"
spec = "openai:served@{url}/v1"
input_usd_per_mtok = "1.00"
output_usd_per_mtok = "10.00"
max_tokens = 64
idempotent = true

[ceilings]
replay_usd = "{replay_usd}"
judging_usd = "{judging_usd}"

[limits]
wall_s = 120

[[graders]]
name = "right-label"
kind = "exact"
at = "/label"

[[graders]]
name = "better"
kind = "judge"
model = "small"
criteria = "The better answer is the kinder one."
max_tokens = 64
"""


def write_shop(
    folder: Path,
    url: str,
    port: int,
    *,
    challenger: str = "v2",
    sessions: tuple[str, ...] = ("s54", "s61"),
    attempts: int = 1,
    replay_usd: str = "1.00",
    judging_usd: str = "1.00",
) -> Path:
    """Write the folder of a trial; give the path of its plan."""
    shutil.copy(CASE_54 / "live_tools.py", folder)
    shutil.copy(CASE_61 / "replay_env.json", folder)
    (folder / "workflows.py").write_text(WORKFLOWS.format(port=port))
    shop = folder / "shop"
    shop.mkdir()
    for order in (7, 8):
        (shop / f"order-{order}.txt").write_text(f"order {order}: 12 EUR")
    script = CASE_28 / "make_input.py"
    subprocess.run([sys.executable, script, shop / "order-9.txt"], check=True)
    config = json.loads(json.loads((CASE_61 / "recorded.traj").read_text())["replay_config"])
    lines = [
        {"type": "session", "id": "s61", "task": CONFIG_TASK, "environment": config["env"]},
        {"type": "decision", "id": "d", "output": {"text": "done", "tool_calls": []}},
    ]
    (folder / "s61.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shutil.copy(CASE_54 / "session.jsonl", folder / "s54.jsonl")
    plan = folder / "plan.toml"
    plan.write_text(
        PLAN.format(
            attempts=attempts,
            challenger=challenger,
            sessions=", ".join(map(json.dumps, sessions)),
            expected=", ".join(f'{name} = "refunded"' for name in sessions),
            url=url,
            replay_usd=replay_usd,
            judging_usd=judging_usd,
        )
    )
    return plan


def shop_model(messages: list[dict[str, Any]], request: dict[str, Any]) -> str | list[Call]:
    """Decide for the shop's agent, as its version says; as a judge, choose the first ranking."""
    if "response_format" in request:
        schema = request["response_format"]["json_schema"]["schema"]["properties"]
        return json.dumps({"reason": "kinder", "ranking": schema["ranking"]["enum"][0]})
    version = messages[0]["content"].split()[1]
    n_results = sum(message["role"] == "tool" for message in messages)
    lookups = {"1": (7,), "2": (8, 9), "3": (7,)}[version]
    if n_results < len(lookups):
        return [(f"c{n_results}", "lookup", {"order": lookups[n_results]})]
    if version == "3" and n_results == 1:
        mail = {"to": "a@example.test", "body": "Refunded"}
        return [("c1", "pay", {"order": 7, "amount": 12}), ("c2", "send_mail", mail)]
    return "kept" if version == "1" else "refunded"


@contextmanager
def shop_server() -> Iterator[LoopbackServer]:
    """Run the shop's model."""
    with run_server() as server:
        server.answer = answer_with(shop_model)
        yield server


def keys_of(server: LoopbackServer) -> list[str]:
    """Give the idempotency key of each request that a server received."""
    return [one.headers.get("idempotency-key", "") for one in server.received]


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], None]) -> Path:
    """Give a folder that is built once for all worker processes of a test run."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, done = base / name, base / f"{name}.done"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            folder.mkdir()
            build(folder)
            done.touch()
    return folder
