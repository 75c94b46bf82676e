"""Records sessions that are full of planted secrets, and reads all that a store's file holds.

An agent is told a secret, its model says it in a stream of pieces and puts it into a call, the
tool gives it back, the harness reads, derives and sends it elsewhere, and a server quotes it in an
error.
"""

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

import zstandard
from msgspec import Raw

from redrive.capture.ports import Outcome, SentRequest
from redrive.capture.recording import RecordingBackend
from redrive.record.event import Event, Kind, SessionStarted, raw_of
from redrive.stores.recording import open_journal
from redrive.stores.texts import TextStore
from tests.planted_secrets import Planted, chat_stream, message_stream
from tests.recorded import CAPTURED, MemorySink
from tests.stored import opened, raw_database

SESSION = "redrive:planted"
CHAT, MESSAGES = "https://api.example/v1/chat/completions", "https://api.example/v1/messages"
EMBEDDINGS = "https://api.example/v1/embeddings"
Scrub = Callable[[Sequence[Event], Sequence[bytes]], tuple[Sequence[Event], Sequence[bytes]]]


class Batches(MemorySink):
    """A sink that remembers what was put together."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[Sequence[Event], Sequence[bytes]]] = []

    def put(self, events: Sequence[Event], artefacts: Sequence[bytes] = ()) -> None:
        super().put(events, artefacts)
        self.batches.append((events, artefacts))


class _Agent:
    """The agent's side of a recorded session."""

    def __init__(self, started: SessionStarted) -> None:
        self.sink = Batches()
        clock = count(1_000_000_000)
        self.backend = RecordingBackend(
            self.sink, SESSION, started, now_ns=lambda: next(clock), by_context=True
        )

    def exchange(
        self, url: str, body: bytes, answer: bytes, *, status: int = 200, is_zipped: bool = False
    ) -> None:
        observer = self.backend.sent(SentRequest("POST", url, (), body, 1))
        headers = (("content-type", "text/event-stream"),)
        if is_zipped:
            answer, headers = gzip.compress(answer), (*headers, ("content-encoding", "gzip"))
        observer.responded(status, headers, 2)
        observer.received(answer)
        observer.finished(Outcome.COMPLETE, 3)

    def live(self, number: int, text: str) -> None:
        """Meet one text in every place where a session can meet one."""
        call_id, size = f"c{number}", 2 + number % 7
        arguments = {"command": text, text: 1}
        is_chat = number % 2 == 0
        body = {"model": "m", "temperature": 0, "seed": 7, "max_tokens": 9}
        body |= {"messages": [{"role": "user", "content": text}]}
        stream = chat_stream if is_chat else message_stream
        answer = stream(text, json.dumps(arguments), call_id, size)
        url = CHAT if is_chat else MESSAGES
        self.exchange(url, json.dumps(body).encode(), answer, is_zipped=number % 3 == 0)
        run = self.backend.begin_call("shell", "unsafe", raw_of(arguments), is_unsafe=True)
        run.returned(raw_of({"out": text}))
        own = self.backend.begin_call("fetch", "pure", raw_of([text]), is_unsafe=False)
        own.raised("ValueError", text)
        self.backend.read(Kind.CLOCK_READ, "time.time", lambda: text)
        self.backend.derive("summary", "sum", "1", raw_of([text]), lambda: text)
        embedded = json.dumps({"input": [text]}).encode()
        self.exchange(EMBEDDINGS, embedded, json.dumps({"echo": text}).encode())
        refusal = json.dumps({"error": {"message": text}}).encode()
        self.exchange(url, json.dumps(body | {"seed": 8}).encode(), refusal, status=401)


def record_planted(texts: Sequence[str]) -> Batches:
    """Record a session in which each of these texts is met everywhere."""
    environment = Raw(json.dumps({"git": {"remote": texts[0]}, "endpoint": "h"}).encode())
    started = SessionStarted(
        task=texts[0], captures=CAPTURED, basis="intercepted", environment=environment
    )
    agent = _Agent(started)
    for number, text in enumerate(texts):
        agent.live(number, text)
    agent.backend.end("success")
    return agent.sink


def store_batches(
    path: Path, batches: Batches, scrub: Scrub | None = None, *, size: int = 64
) -> None:
    """Commit what was recorded, each batch through `scrub`, at least `size` events at once."""
    events: list[Event] = []
    artefacts: list[bytes] = []
    with closing(open_journal(path, SESSION, "redrive", 1)) as journal:
        for batch in batches.batches:
            more, bodies = batch if scrub is None else scrub(*batch)
            events += more
            artefacts += bodies
            if len(events) >= size:
                journal.commit(events, artefacts)
                events, artefacts = [], []
        journal.commit(events, artefacts)


def everything_in(path: Path) -> Iterator[bytes]:
    """Yield all that a store's files hold: their bytes, and what is compressed in them."""
    for file in sorted(path.parent.glob(f"{path.name}*")):
        yield file.read_bytes()
    with raw_database(path) as database:
        for (data,) in database.execute("SELECT data FROM segments"):
            yield zstandard.ZstdDecompressor().decompress(data)
        artefacts = database.execute("SELECT sha256 FROM artefacts").fetchall()
        texts = database.execute("SELECT sha256 FROM texts").fetchall()
        for (document,) in database.execute("SELECT document FROM policy_reports"):
            yield zstandard.ZstdDecompressor().decompress(document)
    with opened(path) as store:
        for (digest,) in artefacts:
            with store.open_artefact(digest.hex()) as stream:
                data = stream.read()
            yield data
            if data.startswith(b"\x1f\x8b"):
                yield gzip.decompress(data)
        reader = TextStore(store._database)  # type: ignore[attr-defined]
        for (digest,) in texts:
            yield reader.get(digest)


def leaks_in(path: Path, planted: Sequence[Planted]) -> list[tuple[str, str, str]]:
    """List what of the secrets a store's files hold, in whole or in half, even in pieces."""
    from tests.planted_secrets import joined_stream

    parts = list(everything_in(path))
    whole = b"\n".join([*parts, *(joined_stream(part).encode() for part in parts)])
    plain = whole.replace(b"\\\\", b"\\").replace(b"\\\\", b"\\").replace(b"\\\\", b"\\")
    return [
        (one.shape, one.spelling, window)
        for one in planted
        for window in one.windows()
        if window.encode() in whole or window.encode() in plain
    ]
