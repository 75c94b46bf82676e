"""Hands what a hook of Claude Code was told to a running recorder, and never disturbs the agent.

Knows where the recorder listens. Must not know what a hook is told, nor what becomes of it.

Source: issue 4 §4; docs/record-claude-code.md.
"""

import http.client
import os
import threading
from collections.abc import Mapping
from urllib.parse import urlsplit

from redrive.capture.claude_hooks import MAX_BYTES
from redrive.capture.route import HOOK_ROUTE, RECORDER_VARIABLE
from redrive.errors import UsageError

TIMEOUT_S = 2.0
LIMIT_S = 4.0
"""After which the process ends, whatever it waits for: the agent waits for its hooks."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def end_in_time(limit_s: float = LIMIT_S) -> threading.Timer:
    """End this process with exit code 0 after a while; cancel what is given back to prevent it."""
    timer = threading.Timer(limit_s, os._exit, (0,))
    timer.daemon = True
    timer.start()
    return timer


def report_to_recorder(data: bytes, environment: Mapping[str, str]) -> bool:
    """Send a hook's input to the recorder that the environment names.

    Returns:
        Whether it was taken; false where no recorder runs.

    Raises:
        UsageError: it is too large, or the recorder's URL is none of loopback.
        OSError, http.client.HTTPException: the recorder cannot be reached.
    """
    url = environment.get(RECORDER_VARIABLE)
    if not url:
        return False
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname not in _LOOPBACK or not parts.port:
        raise UsageError(f"{RECORDER_VARIABLE} is no URL of a recorder on loopback")
    if len(data) > MAX_BYTES:
        raise UsageError(f"a hook's input of {len(data)} bytes")
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)
    try:
        path = f"{parts.path.rstrip('/')}/{HOOK_ROUTE}"
        connection.request("POST", path, data, {"content-type": "application/json"})
        return connection.getresponse().status == http.client.OK
    finally:
        connection.close()
