"""Three versions of a workflow that finds an incident's error code, and one that must not run.

    redrive eligible examples/workflows.py:with_logs
    redrive eligible examples/workflows.py:unsafe_workflow

The tasks are those that the agent in production answered (`incidents/sessions`); the logs are in
the tasks' workspace (`incidents/workspace`).
"""

import json
import re
import smtplib
from pathlib import Path
from typing import Any

from redrive.trial import Grants, Workflow, WorkflowContext, tool

SYSTEM = 'You find the error code of an incident. Answer on one line, like {"code": "E08"}'
CODE = re.compile(r"\bE\d\d\b")


@tool("read_log", effect="read_only", grants=Grants(read=(".",)))
def read_log(service: str) -> str:
    """Read the log of a service."""
    return Path(f"{service}.log").read_text(encoding="utf-8")


@tool("look_up", effect="read_only", grants=Grants(read=("codes.json",)))
def look_up(code: str) -> str:
    """Explain an error code."""
    codes: dict[str, str] = json.loads(Path("codes.json").read_text(encoding="utf-8"))
    return codes.get(code, "unknown code")


@tool("page_someone", effect="unsafe", grants=Grants(network=("mail.example.com:25",)))
def page_someone(text: str) -> str:
    """Wake up whoever is on call."""
    with smtplib.SMTP("mail.example.com") as server:
        server.sendmail("incidents@example.com", ["oncall@example.com"], text)
    return "sent"


def ask(context: WorkflowContext, said: str, codes: list[str]) -> str:
    """Let the model choose among codes."""
    schema = {"type": "object", "properties": {"code": {"enum": codes}}, "required": ["code"]}
    answer = context.complete(
        {
            "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": said}],
            "temperature": 0,
            "top_p": 1,
            "max_tokens": 32,
            "seed": context.seed,
            "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
        }
    )
    code: str = json.loads(answer["choices"][0]["message"]["content"])["code"]
    return code


def run_guess(task: str, context: WorkflowContext) -> dict[str, Any]:
    """As in production: the model hears what was said, and nothing else."""
    codes = [f"E{number:02}" for number in (8, 17, 23, 31, 42, 55, 61, 77)]
    code = ask(context, json.loads(task)["said"], codes)
    return {"code": code, "report": f"The code is {code}."}


def run_with_logs(task: str, context: WorkflowContext) -> dict[str, Any]:
    """The model reads the service's log first, and may name a code that is in it."""
    incident = json.loads(task)
    log = read_log(service=incident["service"])
    code = ask(context, f"{incident['said']}\n{log}", CODE.findall(log))
    return {"code": code, "report": f"The code is {code}."}


def run_explained(task: str, context: WorkflowContext) -> dict[str, Any]:
    """As with logs, and the report says what the code means."""
    found = run_with_logs(task, context)
    meaning = look_up(code=found["code"])
    return {**found, "report": f"The code is {found['code']}: {meaning}."}


guess = Workflow("triage", version="1", tools=[], run=run_guess)
with_logs = Workflow("triage", version="2", tools=[read_log], run=run_with_logs)
explained = Workflow("triage", version="3", tools=[read_log, look_up], run=run_explained)


def run_unsafe(task: str, context: WorkflowContext) -> dict[str, Any]:
    """As explained, and someone is woken up: not in a trial."""
    found = run_explained(task, context)
    page_someone(text=found["report"])
    return found


unsafe_workflow = Workflow(
    "triage", version="4", tools=[read_log, look_up, page_someone], run=run_unsafe
)
