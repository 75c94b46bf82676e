"""A model's endpoint that bills: an OpenAI-compatible server in a process of its own.

It writes each bill to a log, one line `KEY USD`, before it answers: what was written to a file
stays when its reader, or whoever asked, is killed. A repeated `Idempotency-Key` is billed once and
gets the same answer. What it says and what that takes is a function of the request. A user message
that holds `fault:429`, `fault:500`, `fault:cut` or `fault:slow` gets that.

It imports nothing of redrive: it is the other side of the ledger.

Run: python -m tests.billing_endpoint LOG INPUT_USD OUTPUT_USD [ignore-keys] [DELAY_MS]; it prints
its port, and ends with its standard input.
"""

import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
_MILLION = 10**6


class Bills:
    """The log of an endpoint, as it lies on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def lines(self) -> list[tuple[str, Decimal]]:
        """Key and amount of each bill, in the order written."""
        if not self.path.exists():
            return []
        pairs = (line.split(" ") for line in self.path.read_text().splitlines())
        return [(key, Decimal(usd)) for key, usd in pairs]

    @property
    def usd(self) -> Decimal:
        """The sum of all bills."""
        return sum((usd for _, usd in self.lines), Decimal(0))

    def usd_of(self, keys: set[str]) -> Decimal:
        """The sum of the bills under some keys."""
        return sum((usd for key, usd in self.lines if key in keys), Decimal(0))


@contextmanager
def started_endpoint(
    log: Path,
    *,
    input_usd: str = "1.00",
    output_usd: str = "10.00",
    ignores_keys: bool = False,
    delay_ms: int = 0,
) -> Iterator[str]:
    """Start an endpoint; give its base URL. Prices are USD per million tokens."""
    words = ["ignore-keys"] if ignores_keys else []
    words.append(str(delay_ms))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.billing_endpoint", str(log), input_usd, output_usd, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        process.stdin.close()


class _Endpoint:
    """What is billed, and what is answered under each key."""

    def __init__(
        self, log: Path, prices: tuple[Decimal, Decimal], *, ignores_keys: bool, delay_ms: int
    ) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._prices = prices
        self._ignores_keys = ignores_keys
        self._delay_ms = delay_ms
        self._dice = random.Random(7)
        self._lock = threading.Lock()
        self._answers: dict[str, dict[str, Any]] = {}

    def answer(self, key: str, body: bytes) -> dict[str, Any]:
        """Bill a request, unless its key was billed, and give its answer."""
        with self._lock:
            known = None if self._ignores_keys else self._answers.get(key)
            if known is None:
                known = self._answers[key] = _completion(body)
                self._bill(key, known["usage"])
            delay_s = self._dice.uniform(self._delay_ms / 2, self._delay_ms) / 1000
        time.sleep(delay_s)
        return known

    def _bill(self, key: str, usage: dict[str, int]) -> None:
        price_in, price_out = self._prices
        usd = usage["prompt_tokens"] * price_in + usage["completion_tokens"] * price_out
        os.write(self._log, f"{key or '-'} {usd / _MILLION:f}\n".encode())


def _completion(body: bytes) -> dict[str, Any]:
    """Make the answer: some of the tokens that the request allows, by its own digest."""
    request = json.loads(body)
    digest = hashlib.sha256(body).digest()
    n_output = 1 + digest[0] % request["max_tokens"]
    usage = {"prompt_tokens": 1 + len(body) // 4, "completion_tokens": n_output}
    message = {"role": "assistant", "content": f"word {digest.hex()[:8]}"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c", "model": "billed", "choices": [choice], "usage": usage}


def _stream(answer: dict[str, Any]) -> bytes:
    """Write an answer as the events of a stream; the counts stand in the last chunk."""
    content = answer["choices"][0]["message"]["content"]
    pieces = [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in content.split()]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    chunks = [*pieces, end, {"choices": [], "usage": answer["usage"]}]
    return b"".join(b"data: %s\n\n" % json.dumps(c).encode() for c in chunks) + b"data: [DONE]\n\n"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    endpoint: _Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        fault = _fault_in(body)
        if fault in ("429", "500"):
            self._send(int(fault), b'{"error":{"message":"no"}}', "application/json")
            return
        answer = self.endpoint.answer(self.headers.get("idempotency-key", ""), body)
        if fault == "slow":
            time.sleep(0.2)
        if json.loads(body).get("stream"):
            self._send(200, _stream(answer), "text/event-stream", is_cut=fault == "cut")
        else:
            data = json.dumps(answer).encode()
            self._send(200, data, "application/json", is_cut=fault == "cut")

    def _send(self, status: int, data: bytes, kind: str, *, is_cut: bool = False) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if is_cut else data)
        if is_cut:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def handle(self) -> None:
        with suppress(ConnectionError):  # whoever asked was killed
            super().handle()


def _fault_in(body: bytes) -> str:
    _, mark, rest = body.decode().partition("fault:")
    return next((f for f in ("429", "500", "cut", "slow") if mark and rest.startswith(f)), "")


def _main(log: str, input_usd: str, output_usd: str, *words: str) -> None:
    prices = (Decimal(input_usd), Decimal(output_usd))
    _Handler.endpoint = _Endpoint(
        Path(log), prices, ignores_keys="ignore-keys" in words, delay_ms=int(words[-1])
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)  # noqa: T201 - the port, for whoever started this
    sys.stdin.read()


if __name__ == "__main__":
    _main(*sys.argv[1:])
