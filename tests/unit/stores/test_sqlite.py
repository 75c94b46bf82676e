"""The store as a whole: what it costs, and that nothing is half stored when it is killed."""

import hashlib
import os
from contextlib import closing
from pathlib import Path

import pytest

from redrive.record.event import Kind
from redrive.stores.port import SourceRow
from redrive.stores.sqlite import open_store
from tests.stored import body_of, kill_a_writer, messages, opened, put_session, steps_of


def test_a_thousand_growing_steps_cost_at_most_three_times_their_unique_bytes(path: Path) -> None:
    """The source, the events and every request byte for byte, in one closed file."""
    texts = messages(1000)
    source = path.with_name("source.jsonl")
    with source.open("w") as file:
        file.writelines(f"{text}\n{body_of(texts[: n + 1])}\n" for n, text in enumerate(texts))
    with source.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    with opened(path) as store, store.transaction(), source.open("rb") as file:
        store.put_artefact(sha256, source.stat().st_size, file, None)
        writer = store.create("test:a", "test", 1)
        for event in steps_of("test:a", texts, artefact=sha256):
            writer.append(event)
        writer.close()
        store.add_source(SourceRow("test:a", "main", sha256, source.stat().st_size, "test", 1))
    assert source.stat().st_size > 400 * sum(map(len, texts))
    assert path.stat().st_size <= 3 * sum(map(len, texts))
    with opened(path) as store:
        asked: list[str] = []
        store._database._connection.set_trace_callback(asked.append)
        assert sum(1 for _ in store.events("test:a")) == 3000
        assert len(asked) < 3000, "reading in order is not quadratic in texts"


def test_growing_requests_are_read_back_in_order_and_by_seq(path: Path) -> None:
    with opened(path) as store:
        row, events = put_session(store, "test:a", messages(300))
        assert list(store.events(row.session_id)) == events
        wanted = [event for event in events if event.kind is Kind.MODEL_REQUEST]
        read = store.reader(row.session_id).read_events(event.seq for event in wanted)
        assert list(read) == wanted


def test_a_store_knows_where_it_lies_and_whether_it_may_be_written(path: Path) -> None:
    with closing(open_store(path, create=True)) as store:
        assert (store.path, store.is_read_only) == (path, False)
    with closing(open_store(path, create=False, read_only=True)) as store:
        assert store.is_read_only


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_a_killed_writer_leaves_whole_sessions_and_all_that_it_acknowledged(path: Path) -> None:
    stored = 0
    for number in range(10):
        stored += kill_a_writer(path, 0.013 * number)
        with opened(path) as store:
            rows = list(store.sessions())
            assert len(rows) in (stored, stored + 1), "all that was said, at most one more"
            assert {row.n_events for row in rows} == {120}
            assert store.verify().is_ok
        stored = len(rows)
