"""Opens a recorder on a store: what every way to record has in common.

Knows the store, the recorder and the redaction key. Must not know seams.

Source: DESIGN.md §3 "Store"; `docs/reliability.md` "Store and recorder".
"""

import os
import re
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from redrive.app.scrubbing import Scrub, scrub_with_user_key
from redrive.capture.ports import Journal, RecordingFault
from redrive.capture.recorder import Recorder
from redrive.capture.recording import FORMAT, VERSION
from redrive.record.event import Event
from redrive.stores.recording import open_journal

_NO_ID = re.compile(r"[^\w.]+")


class RecorderOptions(msgspec.Struct, frozen=True):
    """How events are kept.

    Attributes:
        is_synced: each event is durable before the agent goes on.
        is_fail_closed: what cannot be recorded stops the agent.
        is_redacted: secrets are masked before anything is stored.
    """

    is_synced: bool = False
    is_fail_closed: bool = False
    is_redacted: bool = False


def new_session_id(agent: str) -> str:
    """Give a session a name of its own: agent, time (UTC) and six random hex digits."""
    name = _NO_ID.sub("-", agent).strip("-") or "agent"
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    return f"{FORMAT}:{name}-{now}-{secrets.token_hex(3)}"


def tell(line: str) -> None:
    """Tell the operator; where stderr is closed there is nobody to tell."""
    if sys.stderr is not None:
        sys.stderr.write(f"redrive: {line}\n")
        sys.stderr.flush()


def open_recorder(
    path: Path,
    session_id: str,
    options: RecorderOptions,
    on_fault: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
) -> Recorder:
    """Open a recorder of one new session.

    Args:
        path: the store; made if it does not exist.
        session_id: as the store is to name it.
        options: how events are kept.
        on_fault: told once, in one line, when nothing is recorded any more.
        environment: says where the redaction key lies.

    Raises:
        StoreError: the store cannot be used, or the session is being recorded already.
    """
    scrub = scrub_with_user_key(environment) if options.is_redacted else None

    def begin() -> Journal:
        journal = open_journal(path, session_id, FORMAT, VERSION)
        return journal if scrub is None else ScrubbingJournal(journal, scrub)

    def fault_line(fault: RecordingFault) -> None:
        lost = f"{fault.n_lost} event{'' if fault.n_lost == 1 else 's'} lost"
        on_fault(f"RECORDING STOPPED: {fault.message} ({lost})")

    return Recorder(
        begin,
        on_fault=fault_line,
        is_synced=options.is_synced,
        is_fail_closed=options.is_fail_closed,
    )


class ScrubbingJournal:
    """A journal that is given no secret: each commit is masked first."""

    def __init__(self, journal: Journal, scrub: Scrub) -> None:
        self._journal = journal
        self._scrub = scrub

    @property
    def session_id(self) -> str:
        """The id that the session has in the store."""
        return self._journal.session_id

    @property
    def next_seq(self) -> int:
        """The seq that the next event must have."""
        return self._journal.next_seq

    def commit(self, events: Sequence[Event], artefacts: Sequence[bytes]) -> None:
        """Mask secrets, then store; see `Journal.commit`."""
        self._journal.commit(*self._scrub(events, artefacts))

    def close(self) -> None:
        """End the recording."""
        self._journal.close()

    def abandon(self) -> None:
        """End the recording after a fault."""
        self._journal.abandon()
