"""The verb `mcp`: a proxy before an MCP server that records what passes."""

import os
from typing import Any

import click

from redrive.app.mcp_recording import McpRecording
from redrive.app.mcp_running import name_server, run_http, run_stdio
from redrive.app.recorder_opening import RecorderOptions
from redrive.audit.effects import Effect
from redrive.capture.mcp_stdio import end_like
from redrive.cli import output
from redrive.errors import UsageError
from redrive.stores.locate import find_cwd, find_home, locate_store


@click.command("mcp")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND…]")
@click.option("--name", metavar="SERVER", help="What the server is called in the record.")
@click.option("--url", metavar="URL", help="The server speaks streamable HTTP there.")
@click.option("--effect", "effects", multiple=True, metavar="TOOL=CLASS", help="May be repeated.")
@click.option("--sync", is_flag=True, help="Each event is durable before a message goes on.")
@click.option("--fail-closed", is_flag=True, help="Pass nothing on that cannot be recorded.")
@click.option("--redact-at-write", is_flag=True, help="Mask secrets before anything is stored.")
@click.pass_obj
def mcp_verb(store: str | None, /, **options: Any) -> int:
    """Record the tools of an MCP server: listings, calls and results.

    With COMMAND alone it takes the server's place on standard input and output; with --url it
    serves a URL of loopback, until it is interrupted, or while COMMAND runs, which finds the URL in
    REDRIVE_MCP_URL. Every byte passes unchanged. It exits with the server's, or COMMAND's, code.
    """
    command, url = options["command"], options["url"]
    if not command and url is None:
        raise UsageError("no server", hint="redrive mcp -- COMMAND…, or redrive mcp --url URL")
    recording = McpRecording(
        server=options["name"] or name_server(command, url),
        effects=dict(map(_parse_effect, options["effects"])),
        recorder=RecorderOptions(
            options["sync"], options["fail_closed"], options["redact_at_write"]
        ),
    )

    def say(line: str) -> None:
        output.say(f"redrive mcp: {line}")

    where = (dict(os.environ), lambda: locate_store(store, os.environ, find_cwd, find_home), say)
    if url is None:
        return end_like(run_stdio(recording, command, *where))
    return end_like(run_http(recording, url, command, *where, output.write_address))


def _parse_effect(text: str) -> tuple[str, str]:
    tool, mark, effect = text.rpartition("=")
    words = [effect.value for effect in Effect]
    if not mark or not tool or effect not in words:
        raise UsageError(f"no effect of a tool: {text!r}", hint=f"TOOL={'|'.join(words)}")
    return tool, effect
