"""A fake model server on loopback, and the local engine where it is installed."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from redrive.models import local


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes
    client_port: int


@dataclass
class FakeServer:
    """Answers each POST with the next of `answers` (status, body) and keeps what it was sent.

    `promised` bytes more than the body are announced where half an answer is wanted.
    """

    url: str = ""
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    promised: int = 0
    delay_s: float = 0.0


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    leaving = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {key.lower(): value for key, value in self.headers.items()}
            fake.received.append(Received(self.path, headers, body, self.client_address[1]))
            leaving.wait(fake.delay_s)
            status, answer = fake.answers.pop(0)
            self.send_response(status)
            self.send_header("content-length", str(len(answer) + fake.promised))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield fake
    leaving.set()
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture
def installed_local_model() -> None:
    if not local.is_installed():
        pytest.skip(f"the local model is not installed: {local.INSTALL_HINT}")
