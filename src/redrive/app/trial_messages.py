"""What the processes of a run and the broker outside say to each other.

Messages of the workflow's process are bodies of control routes of the broker's proxy; those of a
tool's worker are frames on one stream: four bytes of length, then JSON. Values of users travel as
the text of their JSON, so that no number changes on the way. Every message that comes out of a
sandbox is hostile input.

Source: DESIGN.md §6; `redrive.capture.remote_wire`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw

from redrive import canonical
from redrive.capture.json_values import UNREPRESENTABLE_KEY, comparable
from redrive.capture.remote_wire import Asked, Place
from redrive.errors import UsageError

CALL, END, HELLO = "trial-call", "trial-end", "trial-hello"
PLACE_HEADER = "x-redrive-place"
"""Says on a request to a model where in the workflow it comes from; never passed on."""
MAX_TEXT_BYTES = 64 * 1024
FRAME_HEAD_BYTES = 4

_Word = Annotated[str, Meta(max_length=512)]
_Text = Annotated[str, Meta(max_length=MAX_TEXT_BYTES)]
_T = TypeVar("_T")


class CodePlace(msgspec.Struct, frozen=True):
    """Where a workflow's code is.

    Attributes:
        name: of the workflow in its module.
        file: absolute path of its file; empty where a module is named.
        module: of an entry point; empty where a file is named.
        folder: absolute path of the folder that must be seen for the import.
    """

    name: str
    file: str = ""
    module: str = ""
    folder: str = ""


class ChildSetup(msgspec.Struct, frozen=True):
    """What the workflow's process is told, on its standard input.

    Attributes:
        channel: number of the descriptor.
        path: of the broker's proxy, its token included.
        code: where the workflow is.
        tools: name as called → capability.
        models: names, the default first.
        task: the task's input.
        task_id: of the task.
        attempt: from 1.
        seed: of the run.
        most_bytes: of what it gives back.
    """

    channel: int
    path: str
    code: CodePlace
    tools: Mapping[str, str]
    models: tuple[str, ...]
    task: Raw
    task_id: str
    attempt: int
    seed: int
    most_bytes: int


class HelloAsked(msgspec.Struct, frozen=True):
    """First of all: the sources whose reads are intercepted, and what the process runs in."""

    names: Annotated[tuple[_Word, ...], Meta(max_length=64)] = ()
    environment: Annotated[bytes, Meta(max_length=1024 * 1024)] = b"{}"


class CallAsked(Asked, frozen=True, kw_only=True):
    """A tool's call: its name, the caller's right to it, a JSON object of arguments."""

    capability: _Word
    tool: _Text
    arguments: bytes


class CallTold(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a call ended: one of a JSON result, an error (type, message), why it is denied."""

    result: bytes | None = None
    error: tuple[str, str] | None = None
    denied: str | None = None


class Failure(msgspec.Struct, frozen=True):
    """What a workflow ended with: type, message, `FILE:LINE` in its own code if there is one."""

    type: _Text
    message: _Text
    where: _Text = ""


class EndAsked(msgspec.Struct, frozen=True):
    """The workflow's end: its output as JSON, or what it failed with."""

    output: bytes | None = None
    failure: Failure | None = None


class WorkerSetup(msgspec.Struct, frozen=True):
    """What a worker is told, on its standard input.

    Attributes:
        channel: number of the descriptor.
        code: where the workflow is, whose module holds the tools.
        tools: ids of the tools that it runs.
        is_simulated: whether it holds their simulators, and no function.
        port: of its own loopback, where requests to the network go; 0 for none.
        most_bytes: of one answer.
    """

    channel: int
    code: CodePlace
    tools: tuple[str, ...]
    is_simulated: bool = False
    port: int = 0
    most_bytes: int = 1024 * 1024


class WorkerAsked(msgspec.Struct, frozen=True):
    """One call for a worker; `arguments` is a JSON object."""

    number: int
    tool: str
    arguments: bytes


class WorkerTold(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a call in a worker ended; number 0 says that the worker is ready, or why it is not.

    Attributes:
        number: of the call.
        result: JSON.
        error: type and message.
        denied: other tools that it tried to call, by id.
    """

    number: int
    result: bytes | None = None
    error: tuple[str, str] | None = None
    denied: Annotated[tuple[_Word, ...], Meta(max_length=1000)] = ()


def parse_message(body: bytes, kind: type[_T]) -> _T:
    """Read a message.

    Raises:
        UsageError: it is none of that kind.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"no {kind.__name__}: {str(error)[:200]}") from error


def dump_message(message: msgspec.Struct) -> bytes:
    """Write a message."""
    return msgspec.json.encode(message)


def dump_frame(message: msgspec.Struct) -> bytes:
    """Write a message as a frame."""
    data = dump_message(message)
    return len(data).to_bytes(FRAME_HEAD_BYTES, "big") + data


def dump_value(value: Any) -> bytes:
    """Write a value of a user's code as JSON: tuples as lists, data classes as objects.

    Raises:
        TypeError: a part of it has no JSON form; its type is named.
    """
    told = comparable(value)
    stack = [told]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            if part.keys() == {UNREPRESENTABLE_KEY}:
                raise TypeError(f"{part[UNREPRESENTABLE_KEY]} has no JSON form")
            stack += part.values()
        elif isinstance(part, list):
            stack += part
    return canonical.encode(told)


def dump_place(place: Place) -> str:
    """Write a place as a header's value; places hold ASCII alone."""
    return msgspec.json.encode(place).decode()


def cut_text(text: str, most_bytes: int = MAX_TEXT_BYTES) -> str:
    """Shorten a text that a message takes, and make it one that UTF-8 can carry."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= most_bytes:
        return data.decode()
    return data[: most_bytes - 4].decode("utf-8", "ignore") + "…"
