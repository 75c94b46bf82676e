"""A tool's worker: imports the workflow's module, takes one tool's function, answers its calls.

Runs inside a sandbox with that tool's grants and nothing more. One worker of a run may hold all
simulators instead: they share one state, and no function is left in it. Every other tool that the
module holds goes nowhere: what tries to call one is told so, and the try is reported.

Source: DESIGN.md §6 "each tool's code runs in its own sandboxed worker".
"""

import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

from redrive import canonical
from redrive.app.trial_code import load_code
from redrive.app.trial_messages import (
    FRAME_HEAD_BYTES,
    WorkerAsked,
    WorkerSetup,
    WorkerTold,
    cut_text,
    dump_frame,
    dump_value,
)
from redrive.capture.json_values import type_name
from redrive.capture.tools import text_of
from redrive.errors import EffectDenied
from redrive.sandbox.line import open_stream
from redrive.sandbox.shim import CONNECTION
from redrive.trial_tools import Fixture, Tool

_BACKLOG = 64
_READY = 0
_MAX_NOTED = 1000


def main() -> int:
    """Answer calls until the stream ends."""
    setup = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerSetup)
    channel = socket.socket(fileno=setup.channel)
    channel.set_inheritable(False)
    stream = open_stream(channel)
    try:
        if setup.port:
            _serve_network(channel, setup.port)
        tools = _Tools(setup)
    except BaseException as error:  # noqa: BLE001 - told outside, which ends this process
        stream.sendall(dump_frame(WorkerTold(_READY, error=_told(error))))
        return 1
    stream.sendall(dump_frame(WorkerTold(_READY)))
    while (asked := _read(stream)) is not None:
        stream.sendall(dump_frame(tools.answer(asked)))
    return 0


def _read(stream: socket.socket) -> WorkerAsked | None:
    head = _read_exactly(stream, FRAME_HEAD_BYTES)
    body = _read_exactly(stream, int.from_bytes(head, "big"))
    return msgspec.json.decode(body, type=WorkerAsked) if body else None


def _read_exactly(stream: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = stream.recv(min(size - len(parts), 1 << 20))
        if not part:
            return b""
        parts += part
    return parts


def _told(error: BaseException) -> tuple[str, str]:
    message = text_of(error) if isinstance(error, Exception) else str(error)
    return cut_text(type_name(type(error))), cut_text(message)


class _Tools:
    """What this worker holds, and what it must not reach."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._most_bytes = setup.most_bytes
        self._denied: list[str] = []
        self._own: dict[str, Callable[[Mapping[str, Any]], Any]] = {}
        # Bound before anything of the module can call one: its functions are taken out first.
        _, tools = load_code(setup.code)
        state: dict[str, Any] = {}
        for name, tool in tools.items():
            if name in setup.tools:
                self._own[name] = _simulated(tool, state) if setup.is_simulated else _real(tool)
            tool.bind(self._deny)
        missing = set(setup.tools) - self._own.keys()
        if missing:
            raise LookupError(f"the workflow's module holds no tool {min(missing)!r}")

    def _deny(self, name: str, _: Mapping[str, Any]) -> NoReturn:
        if len(self._denied) < _MAX_NOTED:
            self._denied.append(cut_text(name, 512))
        raise EffectDenied(f"tool {name} cannot be called from within another tool")

    def answer(self, asked: WorkerAsked) -> WorkerTold:
        """Run one call."""
        self._denied.clear()
        result, error = None, None
        try:
            value = self._own[asked.tool](canonical.decode_value(asked.arguments))
            result = self._dump(value)
        except BaseException as raised:  # noqa: BLE001 - whatever a tool ends with is its answer
            error = _told(raised)
        return WorkerTold(asked.number, result, error, tuple(self._denied))

    def _dump(self, value: Any) -> bytes:
        try:
            data = dump_value(value)
        except TypeError as error:
            raise TypeError(f"the result: {error}") from error
        if len(data) > self._most_bytes:
            raise OverflowError(f"the result is {len(data)} bytes long: at most {self._most_bytes}")
        return data


def _real(tool: Tool) -> Callable[[Mapping[str, Any]], Any]:
    function = tool.take_function()
    return lambda arguments: function(**arguments)


def _simulated(tool: Tool, state: dict[str, Any]) -> Callable[[Mapping[str, Any]], Any]:
    simulator = tool.take_simulator()
    if isinstance(simulator, Fixture):
        return simulator.answer
    return lambda arguments: simulator(state, **arguments)


def _serve_network(channel: socket.socket, port: int) -> None:
    """Pass what comes to the own loopback out, where a forwarder lets granted places through."""
    listener = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)

    def pass_on() -> None:
        while True:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    socket.send_fds(channel, [CONNECTION], [connection.fileno()])

    threading.Thread(target=pass_on, daemon=True).start()
