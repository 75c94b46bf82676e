"""Writes a server's answers where a rerun serves what was recorded, and no server may be asked.

Pure. Knows how `mcp` reports the ways in which a call ends, and says them to a client again.

Source: JSON-RPC 2.0; DESIGN.md §5 "a recorded error is served as that error".
"""

from collections.abc import Sequence

from msgspec import Raw

from redrive import canonical
from redrive.capture.mcp_messages import Id
from redrive.capture.ports import ServedResult

CANCELLED, CLOSED, RPC_ERROR = "Cancelled", "ConnectionClosed", "JSON-RPC error "
NOT_SERVED = "redrive: a rerun serves calls of tools alone"
_NO_FORM = "redrive: the recorded result has no form that could be served"
_INTERNAL_ERROR, _CONNECTION_CLOSED = -32603, -32000


def answer_served(identity: Id, served: ServedResult) -> bytes:
    """Write the answer to a call; empty where the client was not to wait for one."""
    if isinstance(served.result, Raw):
        return _write(identity, b'"result":' + bytes(served.result))
    if served.error is None:
        return refuse(identity, _NO_FORM)
    name, message = served.error
    if name == CANCELLED:
        return b""
    if name == CLOSED:  # clients make this very error of it
        return refuse(identity, message, _CONNECTION_CLOSED)
    code = name.removeprefix(RPC_ERROR)
    is_code = name != code and code.removeprefix("-").isdecimal()
    return refuse(identity, message, int(code) if is_code else _INTERNAL_ERROR)


def refuse(identity: Id, message: str, code: int = _INTERNAL_ERROR) -> bytes:
    """Write an error."""
    told = canonical.encode({"code": code, "message": message})
    return _write(identity, b'"error":' + told)


def join(answers: Sequence[bytes]) -> bytes:
    """Give one message, or several as a batch."""
    return answers[0] if len(answers) == 1 else b"[" + b",".join(answers) + b"]" if answers else b""


def _write(identity: Id, body: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":' + canonical.encode(identity[1]) + b"," + body + b"}"
