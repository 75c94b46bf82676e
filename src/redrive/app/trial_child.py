"""The workflow's process: imports the workflow, binds its tools to the broker, runs it.

Runs inside the sandbox, started by `trial_processes`. All that it has is one descriptor that leads
to the broker, the Python environment and the workflow's folder, both read-only. It reports its end
and goes; what still runs in it then is ended from outside.

Source: DESIGN.md §6 "the workflow is a child process".
"""

import socket
import sys
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from redrive import canonical
from redrive.app.trial_code import load_code
from redrive.app.trial_context import RunContext, handle_of
from redrive.app.trial_line import BrokerLine
from redrive.app.trial_messages import (
    END,
    HELLO,
    ChildSetup,
    EndAsked,
    Failure,
    HelloAsked,
    cut_text,
    dump_message,
    dump_value,
)
from redrive.capture.interception import ALL_SOURCES, intercept
from redrive.capture.json_values import type_name
from redrive.capture.manifest import build_manifest
from redrive.capture.remote import RemoteBackend
from redrive.capture.route import CONTROL
from redrive.capture.tools import text_of
from redrive.errors import RedriveError
from redrive.sandbox.line import tell_failed, tell_started

# The port is not looked at: connections go through the descriptor.
_ORIGIN = "http://127.0.0.1:1"


def main() -> int:
    """Run the workflow that standard input names; the exit status says nothing."""
    setup = msgspec.json.decode(sys.stdin.buffer.read(), type=ChildSetup)
    channel = socket.socket(fileno=setup.channel)
    channel.set_inheritable(False)
    try:
        line = BrokerLine(channel, setup.path)
        url = f"{_ORIGIN}{setup.path}/{CONTROL}"
        backend = RemoteBackend(url, connect=line.connect, lost=SystemExit)
        tell_started(channel)
    except (OSError, RedriveError) as error:
        tell_failed(channel, str(error))
        return 1
    with ExitStack() as stack:
        roots = (Path(setup.code.folder),)
        held = stack.enter_context(intercept(backend, ALL_SOURCES, roots=roots))
        line.ask(HELLO, dump_message(HelloAsked(tuple(sorted(held.names)), _environment(roots[0]))))
        end = _run(setup, RunContext(setup, line, backend))
        line.ask(END, dump_message(end))
    return 0


def _environment(root: Path) -> bytes:
    try:
        return canonical.encode(build_manifest(root))
    except (RedriveError, OSError):
        return b"{}"


def _run(setup: ChildSetup, context: RunContext) -> EndAsked:
    try:
        workflow, tools = load_code(setup.code)
        for tool in tools.values():
            tool.bind(handle_of(context))
        output = workflow.run(canonical.decode_value(setup.task), context)
        return EndAsked(output=_dump_output(output, setup.most_bytes))
    except BaseException as error:  # noqa: BLE001 - whatever it ends with is told, exits included
        return EndAsked(failure=describe(error, setup.code.folder))


def _dump_output(output: Any, most_bytes: int) -> bytes:
    try:
        data = dump_value(output)
    except TypeError as error:
        raise TypeError(f"what the workflow gives back: {error}") from error
    if len(data) > most_bytes:
        raise OverflowError(f"what the workflow gives back is {len(data)} bytes long")
    return data


def describe(error: BaseException, folder: str) -> Failure:
    """Say what code ended with, and where in the code of a folder."""
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(folder + "/"):
            where = f"{frame.filename[len(folder) + 1 :]}:{frame.lineno}"
    message = text_of(error) if isinstance(error, Exception) else str(error)
    return Failure(cut_text(type_name(type(error))), cut_text(message), cut_text(where))
