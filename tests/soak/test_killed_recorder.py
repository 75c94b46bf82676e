"""`kill -9` at any moment of a recording: all that was acknowledged is there, in order, once."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import canonical
from redrive.app.listing import list_sessions
from redrive.errors import UsageError
from redrive.record.event import Event
from tests.recorders import SESSION
from tests.soak.recording import Killer, all_events, started_killer
from tests.stored import opened

KILLS = 1000 if os.environ.get("REDRIVE_SOAK") == "full" else 50
KILLS_PER_STORE = 5
# A fast machine does not come to the end of the session in so many times so long.
LONGEST_MS = 40
_EVENTS = all_events()


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    with started_killer() as started:
        yield started


def acknowledged(path: Path) -> int:
    """Give how many events were acknowledged so far: all up to the greatest seq."""
    acks = Path(f"{path}.acks")
    return max(map(int, acks.read_text().split()), default=-1) + 1 if acks.exists() else 0


def check_recording(path: Path, wanted: list[Event]) -> int:
    """Hold that all that was acknowledged is stored as it was put; give how much is stored."""
    n_acknowledged = acknowledged(path)
    with opened(path) as store:
        verified = store.verify()
        assert verified.is_ok, verified.faults
        try:
            events = list(store.events(SESSION))
        except UsageError:  # killed before the session was begun
            events = []
        assert events == wanted[: len(events)], "in order, each once"
        assert len(events) >= n_acknowledged, "an acknowledged event is lost"
        for view in list_sessions(store).sessions:
            assert (view.recorder, view.events) == ("ended early", len(events))
    return len(events)


def test_a_killed_recorder_loses_nothing_that_it_acknowledged(
    killer: Killer, tmp_path: Path
) -> None:
    draws = canonical.stream("kill", "recorder")
    sizes, n_grown, n_ahead, n_stored = set(), 0, 0, 0
    for number in range(KILLS):
        path = tmp_path / f"{number // KILLS_PER_STORE}.db"
        before = 0 if number % KILLS_PER_STORE == 0 else n_stored
        # Of five, one may be killed before it began; the others have acknowledged something.
        since = "acknowledgement" if number % KILLS_PER_STORE else "start"
        killer.kill(path, next(draws) % LONGEST_MS / 1000, since=since)
        n_stored = check_recording(path, _EVENTS)
        sizes.add(n_stored)
        n_grown += n_stored > before
        n_ahead += n_stored > acknowledged(path)
        if number % KILLS_PER_STORE == KILLS_PER_STORE - 1:
            for file in tmp_path.glob(f"{path.name}*"):
                file.unlink()
    assert n_grown >= KILLS * 8 // 10, "the control: recorders were killed while they recorded"
    assert len(sizes) >= KILLS_PER_STORE - 1, "the control: at different places"
    assert n_ahead, "the control: also between a commit and its acknowledgement"


def test_the_check_finds_a_recorder_that_acknowledges_too_early(
    killer: Killer, tmp_path: Path
) -> None:
    n_lost = 0
    for number in range(20):
        path = tmp_path / f"{number}.db"
        killer.kill(path, number / 200, "eager")
        try:
            check_recording(path, _EVENTS)
        except AssertionError as error:
            n_lost += "an acknowledged event is lost" in str(error)
    assert n_lost >= 3
