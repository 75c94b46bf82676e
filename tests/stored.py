"""Sessions to put into a store, and ways to damage the file that holds them."""

import hashlib
import io
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Raw

from redrive import canonical
from redrive.record.event import (
    Event,
    Kind,
    ModelRequest,
    ModelResponse,
    Source,
    UserMessage,
    dump_payload,
)
from redrive.stores.port import (
    HookRow,
    InferenceRow,
    LabelRow,
    SampleRow,
    SessionRow,
    SourceRow,
    Store,
)
from redrive.stores.sqlite import open_store
from tests.trials import entries, whole_trial
from tests.trials import opened as opened_trial

_WORDS = [f"{canonical.digest(str(n).encode())[: 2 + n % 7]}" for n in range(800)]
NS = 10**9


def message(seed: str, size: int = 500) -> str:
    """Draw a text of `size` characters or a little more, with the word statistics of a language."""
    draws = canonical.stream(seed, "message")
    text = ""
    while len(text) < size:
        draw = next(draws)
        text += _WORDS[draw % (1 + (draw >> 32) % len(_WORDS))] + " "
    return text


def messages(count: int, size: int = 500) -> list[str]:
    """Draw several messages."""
    return [message(str(number), size) for number in range(count)]


def body_of(texts: list[str]) -> str:
    """Write the request body that a chat API gets with these messages."""
    return canonical.encode(
        {"model": "m", "messages": [{"role": "user", "content": text} for text in texts]}
    ).decode()


def event_at(session_id: str, seq: int, kind: Kind, payload: Raw, *, artefact: str = "") -> Event:
    """Make an event whose place follows from its seq."""
    return Event(
        id=f"e{seq}",
        session_id=session_id,
        seq=seq,
        kind=kind,
        node_id=f"n{seq}",
        parent_id=f"n{seq - 1}" if seq else None,
        source=Source(artefact, seq * 100, 100),
        payload=payload,
        ts_ns=(1000 + seq) * NS,
    )


def steps_of(session_id: str, texts: list[str], *, artefact: str = "") -> Iterator[Event]:
    """Yield user message, growing request and response of each step."""
    for number, text in enumerate(texts):
        request = ModelRequest(api="openai.chat", body=body_of(texts[: number + 1]))
        for offset, (kind, payload) in enumerate(
            (
                (Kind.USER_MESSAGE, UserMessage(text=text)),
                (Kind.MODEL_REQUEST, request),
                (Kind.MODEL_RESPONSE, ModelResponse(text=f"answer {number}")),
            )
        ):
            yield event_at(
                session_id, 3 * number + offset, kind, dump_payload(payload), artefact=artefact
            )


def put_bytes(store: Store, data: bytes, extends: bytes | None = None) -> str:
    """Store a source; give its digest."""
    sha256 = hashlib.sha256(data).hexdigest()
    tail, base = data, None
    if extends is not None:
        tail, base = data[len(extends) :], hashlib.sha256(extends).hexdigest()
    store.put_artefact(sha256, len(data), io.BytesIO(tail), base)
    return sha256


def put_session(
    store: Store, base_id: str, texts: list[str], *, role: str = "main"
) -> tuple[SessionRow, list[Event]]:
    """Store a session of growing requests with its source; give its row and its events."""
    data = "\n".join(body_of(texts[: n + 1]) for n in range(len(texts))).encode()
    with store.transaction():
        sha256 = put_bytes(store, data)
        writer = store.create(base_id, "test", 1)
        events = list(steps_of(writer.session_id, texts, artefact=sha256))
        for event in events:
            writer.append(event)
        writer.close()
        store.set_summary(writer.session_id, {"events": len(events)})
        store.add_source(SourceRow(writer.session_id, role, sha256, len(data), "test", 1, {"n": 1}))
    return store.get_session(writer.session_id), events


def put_policy_rows(store: Store, base_id: str) -> None:
    """Store two rows or more of each table about policies."""
    tables, refs = store.policies, (f"{base_id}#e2", f"{base_id}#e0")
    for number in (1, 2):
        code, key = (canonical.text_digest(f"{what} {number}") for what in ("code", "key"))
        document = b'{"reports":[],"sessions":["%s"]}' % base_id.encode()
        report = tables.put_report("no-rm", f"1.{number}", code, document, number * NS)
        tables.put_inferences(
            [InferenceRow(key, "mood", "local", f'{{"n":{number}}}', "null", '{"m":"x"}')]
        )
        sample = SampleRow(
            f"s{number}", "no-rm", f"1.{number}", "seed", "head", 9, report.id, refs, 5 * NS
        )
        tables.put_sample(sample)
        tables.put_label(LabelRow("s1", refs[number - 1], "ann", "true", "so", 6 * NS))
        call = None if number == 2 else "toolu_1"
        tables.add_hook_decision(
            HookRow(
                7 * NS, "no-rm", "1.1", code, "s", call, "PreToolUse", "deny", "why", key, False
            )
        )
    tables.put_label(LabelRow("s1", refs[0], "ann", "unsure", "", 8 * NS))


def put_trial(store: Store) -> str:
    """Store a trial with an entry of each kind, and the answer that one names; give its id."""
    answer = b'{"status":200,"headers":[],"outcome":"complete"}\n{}'
    row = store.trials.create("triage-1", canonical.text_digest("plan"), b"[tasks]" * 9, 5 * NS)
    facts = (opened_trial(), *whole_trial(answer))
    store.trials.append(row.trial_id, entries(*facts), [answer])
    return row.trial_id


def kill_a_writer(path: Path, after_s: float) -> int:
    """Kill a process that stores sessions; give how many of them it said were stored.

    Args:
        path: the store.
        after_s: how long it goes on after it said so for the first time.
    """
    root = Path(__file__).resolve().parent.parent
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.stored", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])},
        cwd=root,
    )
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == "stored\n"
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
        count = 1 + len(said.read().splitlines())
    process.wait()
    return count


def _write_for_ever(path: Path) -> None:
    with opened(path) as store:
        while True:
            put_session(store, "test:a", messages(40, 100))
            sys.stdout.write("stored\n")
            sys.stdout.flush()


@contextmanager
def opened(path: Path, **options: bool | int) -> Iterator[Store]:
    """Open a store for a while, making it if need be."""
    with closing(open_store(path, create=True, **options)) as store:  # type: ignore[arg-type]
        yield store


@contextmanager
def raw_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Reach behind the store's back; what is changed is committed."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        with connection:
            yield connection
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


if __name__ == "__main__":
    _write_for_ever(Path(sys.argv[1]))
