"""The inside of a run: how a workflow's process reaches the broker outside.

Knows one descriptor and HTTP. Each connection is one end of a pair of Unix streams, passed out; one
for each thread. The standard library's client alone, which no recorder of HTTP libraries sees.
"""

import http.client
import os
import socket
import threading
from collections.abc import Mapping

from redrive.capture.route import CONTROL
from redrive.errors import ContainmentError
from redrive.sandbox.line import open_stream

_HOST = "127.0.0.1"
_OK = 200


class _Connection(http.client.HTTPConnection):
    def __init__(self, channel: socket.socket) -> None:
        super().__init__(_HOST)
        self._channel = channel

    def connect(self) -> None:
        self.sock = open_stream(self._channel)

    def __del__(self) -> None:
        self.close()


class BrokerLine:
    """Connections to the broker, one for each thread of each process.

    Args:
        channel: the descriptor that leads out.
        path: of the broker's proxy, its token included.
    """

    def __init__(self, channel: socket.socket, path: str) -> None:
        self._channel = channel
        self._path = path
        self._local = threading.local()

    def connect(self) -> socket.socket:
        """Open one more connection."""
        return open_stream(self._channel)

    def ask(self, route: str, body: bytes) -> bytes:
        """Send a message to a control route; give the answer.

        Raises:
            ContainmentError: the broker does not take it, or is gone.
        """
        status, data = self.post(f"/{CONTROL}/{route}", body, {"content-type": "application/json"})
        if status != _OK:
            words = data[:300].decode("utf-8", "replace")
            raise ContainmentError(f"the broker refused {route}: {status} {words}")
        return data

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Send a request, never twice; give status and body.

        Raises:
            ContainmentError: the broker is gone.
        """
        connection = self._connection()
        try:
            connection.request("POST", self._path + path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self._local.connection = None
            raise ContainmentError(f"the broker is gone: {type(error).__name__}") from error

    def _connection(self) -> http.client.HTTPConnection:
        kept: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if kept is None or self._local.pid != os.getpid():
            kept = self._local.connection = _Connection(self._channel)
            self._local.pid = os.getpid()
        return kept
