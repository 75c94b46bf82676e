"""A model server on loopback whose answers a test lays down byte by byte, chunk by chunk."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Answer:
    """One answer.

    `chunks` are written one HTTP chunk each, unless `length` announces one body of as many bytes
    (more than there are: the server hangs up early). `is_cut` leaves out the last, empty chunk.
    After `n_before` chunks the server waits for `LoopbackServer.go_on`.
    """

    chunks: tuple[bytes, ...] = (b"{}",)
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)
    length: int | None = None
    is_cut: bool = False
    n_before: int | None = None


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class LoopbackServer:
    """Gives each request the next of `answers`, or what `answer` makes of it."""

    url: str = ""
    answers: list[Answer] = field(default_factory=list)
    answer: Callable[["Received"], Answer] | None = None
    received: list[Received] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake: LoopbackServer

    def handle(self) -> None:
        # The client may have gone: that is what some tests are about.
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_POST(self) -> None:
        headers = {key.lower(): value for key, value in self.headers.items()}
        body = self._read_body(headers)
        received = Received(self.command, self.path, headers, body)
        self.fake.received.append(received)
        make = self.fake.answer
        self._write(self.fake.answers.pop(0) if make is None else make(received))

    do_GET = do_POST  # noqa: N815 - the base class asks for it

    def _read_body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(headers.get("content-length", "0")))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _write(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        is_chunked = answer.length is None
        if is_chunked:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(answer.length))
        self.end_headers()
        for index, chunk in enumerate(answer.chunks):
            if index == answer.n_before:
                self.fake.go_on.wait(60)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk) if is_chunked else chunk)
        if answer.is_cut or (answer.length or 0) > sum(map(len, answer.chunks)):
            self.close_connection = True
        elif is_chunked:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def run_server() -> Iterator[LoopbackServer]:
    """Run one on a free port until the block ends."""
    fake = LoopbackServer()
    handler = type("Handler", (_Handler,), {"fake": fake})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    fake.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        fake.go_on.set()
        http.shutdown()
        http.server_close()
        thread.join()
