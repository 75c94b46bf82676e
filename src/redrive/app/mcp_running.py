"""Runs an MCP proxy: on stdio before a command, or on loopback before a URL.

Knows which proxy is told by which observer. Must not know the protocol, nor how a verb is called.

Source: issue 4 §3; docs/mcp.md.
"""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from redrive.app.mcp_recording import McpRecording, recorded_mcp
from redrive.capture.mcp import McpObserver, Reporter
from redrive.capture.mcp_stdio import forwarded_signals, relay_stdio
from redrive.errors import RerunStopped, StoreError, UsageError

URL_VARIABLE = "REDRIVE_MCP_URL"
_UPSTREAM = "mcp"


def name_server(command: Sequence[str], url: str | None) -> str:
    """Name a server that the user did not name: its host, or its program."""
    if url is not None:
        return urlsplit(url).hostname or "server"
    return os.path.basename(command[0]) or "server"


def run_stdio(
    recording: McpRecording,
    command: Sequence[str],
    environment: Mapping[str, str],
    find_store: Callable[[], Path],
    say: Callable[[str], None],
) -> int:
    """Run a server on this process's standard input and output, and record what passes.

    Returns:
        The server's exit code; negative where a signal ended it.

    Raises:
        UsageError: the server cannot be started; standard input or output is closed.
        RedriveError: the recording is fail-closed, and failed; or a rerun has stopped.
    """
    with recorded_mcp(recording, environment, find_store, say) as recorded:
        observer = _observer(recording, recorded.reporter, "mcp")
        with _client_side() as (client_in, client_out):
            try:
                code = relay_stdio(
                    command,
                    observer,
                    client_in=client_in,
                    client_out=client_out,
                    environment=environment,
                )
            except RerunStopped as stop:  # whoever runs again says what differs
                raise StoreError(str(stop)) from stop
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        observer.closed(f"the server ended with {how}")
        recorded.end(how)
    return code


def run_http(
    recording: McpRecording,
    url: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    find_store: Callable[[], Path],
    say: Callable[[str], None],
    show_url: Callable[[str], None],
) -> int:
    """Pass an MCP server of another URL on at a URL of loopback, and record what passes.

    Args:
        recording: what is recorded.
        url: of the server.
        command: what to run meanwhile, with the URL of loopback in `REDRIVE_MCP_URL`; empty: until
            this process is interrupted.
        environment: of the command.
        find_store: says where the store lies.
        say: tells the operator one line.
        show_url: is told the URL of loopback, where there is no command.

    Returns:
        The command's exit code; 0 without one.

    Raises:
        UsageError: the URL is none of a server; the command cannot be started; the package for
            proxies is missing.
        RedriveError: the recording is fail-closed, and failed.
    """
    from redrive.capture.mcp_http import McpHttp
    from redrive.capture.proxy import Proxy
    from redrive.capture.proxy_thread import ProxyThread

    with recorded_mcp(recording, environment, find_store, say) as recorded:
        observer = _observer(recording, recorded.reporter, "mcp_http")
        proxy = Proxy(McpHttp(observer), {_UPSTREAM: url}, on_fault=say)
        with ProxyThread(proxy) as running:
            code = _run_beside(running.url_for(_UPSTREAM), command, environment, show_url)
        observer.closed("the proxy was stopped")
        recorded.end(f"exit code {code}" if command else "stopped")
    return code


def _run_beside(
    url: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    show_url: Callable[[str], None],
) -> int:
    if command:
        return _run(command, {**environment, URL_VARIABLE: url})
    show_url(url)
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
    return 0


def _observer(recording: McpRecording, reporter: Reporter, seam: str) -> McpObserver:
    return McpObserver(
        recording.server,
        reporter,
        recording.effects,
        seam=seam,
        is_fail_closed=recording.recorder.is_fail_closed,
    )


@contextmanager
def _client_side() -> Iterator[tuple[int, int]]:
    """Give what the client writes to and reads from; nothing else of this process does so any more.

    Whoever gets them closes them: the client must see that the server is gone.
    """
    try:
        client_in = os.dup(0)
        client_out = os.dup(1)
    except OSError as error:
        raise UsageError(
            "standard input or output is closed", hint="an MCP client starts this command"
        ) from error
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    yield client_in, client_out


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise UsageError(f"{command[0]}: {error.strerror}", hint="-- COMMAND…") from error
    with forwarded_signals(child):
        return child.wait()
