"""Labels a sample on a page that is served on loopback, to one browser, for one rater.

Knows HTTP and the page. Must not know what labels prove. What a listener must do is kept here:
loopback alone, a random token per start on every request, the Host allow-list, the origin of what
writes, caps on bodies and headers, no cookie, no CORS, no stack trace. Text from a recording stands
only inside a JSON block with `<` escaped, and the page's script puts it in by `textContent`.

This module needs the extra `ui`; who imports it says so where it is missing.

Source: DESIGN.md §7 "Annotation"; rules for every listener.
"""

import base64
import hashlib
import hmac
import secrets
import shlex
import socket
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive import canonical
from redrive.app.annotating import Annotation
from redrive.errors import RedriveError, UsageError
from redrive.reports.annotation import (
    CRITERION,
    QUESTION,
    Item,
    action_text,
    facts_of,
    no_state,
    place_text,
    show_command,
    state_text,
)
from redrive.reports.escape import escape

HOST = "127.0.0.1"
TOKEN_BYTES = 32
MAX_BODY_BYTES = 16 * 1024
MAX_HEADER_BYTES = 16 * 1024
_MAX_CONNECTIONS = 32
_TOKEN_HEADER = "x-redrive-token"  # noqa: S105 - a header's name


class LabelRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the page sends for one label; `item` counts from 0."""

    item: int
    label: str
    note: str = ""


def make_token() -> str:
    """Draw the token of one start: 256 bits."""
    return secrets.token_urlsafe(TOKEN_BYTES)


# --- the page


class Page(msgspec.Struct, frozen=True):
    """The page's bytes, and the policy that lets its own script and style run and nothing else."""

    body: bytes
    content_policy: str


def build_page(annotation: Annotation, token: str) -> Page:
    """Write the page of one rater; that rater's labels are in it, nobody else's."""
    folder = files("redrive.reports").joinpath("pages")
    template, style, script = (
        folder.joinpath(f"annotation.{kind}").read_text("utf-8") for kind in ("html", "css", "js")
    )
    parts = {"style": style, "script": script, "data": _data_block(annotation, token)}
    begin, *rest = template.split("{{")
    body = begin
    for piece in rest:
        name, _, text = piece.partition("}}")
        body += parts[name] + text
    policy = (
        f"default-src 'none'; script-src '{_source_hash(script)}'; style-src"
        f" '{_source_hash(style)}'; img-src data:; connect-src 'self'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'"
    )
    return Page(body.encode(), policy)


def _source_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data_block(annotation: Annotation, token: str) -> str:
    """Write the data as JSON that cannot end its script block: no `<`, `>` or `&` stays."""
    sample = annotation.sample
    places = range(len(annotation.items))
    labels = [annotation.label_of(place) for place in places]
    data = {
        "token": token,
        "policy": escape(f"{sample.policy} @ {sample.version}"),
        "rater": escape(f"rater {annotation.rater}"),
        "question": QUESTION,
        "criterion": CRITERION,
        "next": escape(f"redrive policy precision {shlex.quote(sample.policy)}"),
        "items": [_view(item) for item in annotation.items],
        "labels": [row and {"label": row.label, "note": row.note} for row in labels],
    }
    text = canonical.encode(data).decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _view(item: Item) -> dict[str, Any]:
    fire = item.fire
    inferred = canonical.encode(fire.inferences).decode() if fire.inferences else ""
    return {
        "action": escape(action_text(fire.action)),
        "reason": escape(fire.reason, keep_lines=True),
        "context": escape(fire.context, keep_lines=True),
        "asked": escape(fire.asked, keep_lines=True),
        "before": [escape(text, keep_lines=True) for text in fire.before],
        "task": escape(item.task),
        "facts": [escape(fact) for fact in (place_text(item), *facts_of(fire)) if fact],
        "closer": escape(show_command(item)),
        "notes": [escape(text, keep_lines=True) for text in fire.notes],
        "inferred": escape(inferred),
        "state": escape(state_text(item.state), keep_lines=True),
        "no_state": no_state(item.state),
    }


# --- the listener


def make_app(annotation: Annotation, token: str, port: int, finish: Callable[[], None]) -> ASGIApp:
    """Make the ASGI application that shows the page and stores labels.

    Args:
        annotation: whose labels; used from the thread that serves.
        token: of this start.
        port: that it is served on, for the Host allow-list.
        finish: is called when the rater has finished.
    """

    async def show(request: Request) -> Response:
        if not _is_token(request.query_params.get("token", ""), token):
            return PlainTextResponse("open the address that redrive printed", 403)
        page = build_page(annotation, token)
        headers = {"content-security-policy": page.content_policy}
        return Response(page.body, headers=headers, media_type="text/html")

    async def label(request: Request) -> Response:
        try:
            wanted = msgspec.json.decode(await request.body(), type=LabelRequest)
            annotation.put(wanted.item, wanted.label, wanted.note)
        except (msgspec.DecodeError, UnicodeDecodeError, UsageError) as error:
            return JSONResponse({"error": str(error)}, 400)
        except RedriveError as error:
            return JSONResponse({"error": error.message}, 503)
        return JSONResponse({"labelled": annotation.n_labelled})

    async def end(_: Request) -> Response:
        finish()
        return JSONResponse({"labelled": annotation.n_labelled})

    routes = [
        Route("/", show, methods=["GET"]),
        Route("/labels", label, methods=["POST"]),
        Route("/finish", end, methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes), token, port)


def _is_token(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


class Guard:
    """Refuses, before any route is looked at, what this page's own browser would never send.

    Args:
        app: what lies behind it.
        token: of this start.
        port: that it is served on.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._hosts = {f"{name}:{port}" for name in (HOST, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        sealed = _sealing(send)
        refusal = self._refusal(scope["method"], Headers(scope=scope))
        if refusal is None:
            body = await _read_body(receive)
            if body is not None:
                await self._app(scope, _replaying(body), sealed)
                return
            refusal = (413, f"a body of more than {MAX_BODY_BYTES} bytes")
        status, why = refusal
        await JSONResponse({"error": why}, status)(scope, receive, sealed)

    def _refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        if headers.getlist("host") not in [[host] for host in self._hosts]:
            return 421, "this address is not served here"
        if sum(len(name) + len(value) for name, value in headers.raw) > MAX_HEADER_BYTES:
            return 431, f"headers of more than {MAX_HEADER_BYTES} bytes"
        if method in ("GET", "HEAD"):
            return None
        if headers.get("origin", "") not in {"", *(f"http://{host}" for host in self._hosts)}:
            return 403, "this request comes from another page"
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return 403, "this request comes from another page"
        if not _is_token(headers.get(_TOKEN_HEADER, ""), self._token):
            return 403, "the token is wrong: redrive was started anew"
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "expected application/json"
        return None


async def _read_body(receive: Receive) -> bytes | None:
    """Read a whole body; `None` for one that is too large or was broken off."""
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if message["type"] != "http.request" or len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return body


def _replaying(body: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _sealing(send: Send) -> Send:
    """Put on every answer what a browser must know of it, refusals and faults included."""

    async def send_sealed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.setdefault(
                "content-security-policy", "default-src 'none'; frame-ancestors 'none'"
            )
            headers["x-content-type-options"] = "nosniff"
            headers["x-frame-options"] = "DENY"
            headers["referrer-policy"] = "no-referrer"
            headers["cache-control"] = "no-store"
            headers["cross-origin-opener-policy"] = "same-origin"
            headers["cross-origin-resource-policy"] = "same-origin"
        await send(message)

    return send_sealed


def serve_page(annotation: Annotation, port: int, announce: Callable[[str], None]) -> None:
    """Serve the page on loopback until the rater finishes or interrupts.

    Args:
        annotation: whose labels.
        port: to listen on; 0 for any that is free.
        announce: is called with the address, which holds the token, once it is listened on.

    Raises:
        UsageError: the port cannot be listened on.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        try:
            listener.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise UsageError(f"port {port} cannot be used: {error}", hint="--port 0") from error
        listener.listen()
        token, bound = make_token(), listener.getsockname()[1]

        def finish() -> None:
            server.should_exit = True

        config = uvicorn.Config(
            make_app(annotation, token, bound, finish),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MAX_CONNECTIONS,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_graceful_shutdown=2,
        )
        server = uvicorn.Server(config)
        announce(f"http://{HOST}:{bound}/?token={token}")
        server.run(sockets=[listener])
