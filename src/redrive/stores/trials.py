"""What a store keeps of trials: their plans, the entries of their ledgers, answers once paid for.

Knows rows, entries as JSON, and artefacts. Must not know what an entry means for money: that is the
fold in `redrive.replay.ledger`. These tables only grow; see `growing`.

Source: DESIGN.md §6 "a ledger with `purpose`"; §3 "run ledger".
"""

import hashlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import zstandard
from msgspec import Raw
from msgspec.structs import replace

from redrive import canonical
from redrive.errors import StoreError, TamperError, UsageError, quote
from redrive.replay.ledger import Entry, Finished, Graded, Settled, Stopped
from redrive.replay.trial_values import EpisodeEnd
from redrive.stores import artefacts
from redrive.stores.database import Database
from redrive.stores.growing import append_row, rewrite_rows
from redrive.stores.port import TrialChanges, TrialRow
from redrive.stores.rows import Row, StoredEntry, StoredTrial, find_row, read_rows

TRIAL_TABLES: tuple[type[Row], ...] = (StoredTrial, StoredEntry)
_T = TypeVar("_T")
_RAW: Mapping[type, Mapping[str, Any]] = {
    Entry: {"fact": {"end": {"output": Raw}, "result": Raw}},
    EpisodeEnd: {"output": Raw},
}
"""Where values of others stand as they came, in each kind that is read."""
_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


class SqliteTrialTables:
    """A `redrive.stores.port.TrialTables`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Use the transaction that is open, or one of its own."""
        if self._database.is_in_transaction:
            yield
        else:
            with self._database.transaction():
                yield

    def create(self, base_id: str, plan_digest: str, document: bytes, created_ns: int) -> TrialRow:
        """Begin a trial: `base_id`, or `base_id@N` where trials of that id are stored."""
        data = zstandard.ZstdCompressor(level=3).compress(document)
        with self._writing():
            trial_id, number = base_id, 1
            while self._find(trial_id) is not None:
                number += 1
                trial_id = f"{base_id}@{number}"
            values = (trial_id, plan_digest, created_ns, len(document), data)
            return self._shown(append_row(self._database, StoredTrial, values))

    def append(
        self, trial_id: str, entries: Sequence[Entry], answers: Sequence[bytes] = ()
    ) -> None:
        """Append entries and the answers that they name, all or none.

        Args:
            trial_id: exact.
            entries: dense in number, from the count of the stored ones.
            answers: verbatim bytes; one that is stored already costs a look-up.

        Raises:
            UsageError: there is no such trial.
            StoreError: the entries do not follow the stored ones: another process wrote as well.
        """
        with self._writing():
            self._get(trial_id)
            expected = self._count(trial_id)
            for number, entry in enumerate(entries, start=expected):
                if entry.number != number:
                    raise StoreError(
                        f"entry {entry.number} of trial {trial_id} cannot follow: "
                        f"expected entry {number}",
                        hint="does another process run this trial?",
                    )
                append_row(self._database, StoredEntry, (trial_id, number, canonical.encode(entry)))
            for answer in answers:
                self._put_answer(answer)

    def _put_answer(self, data: bytes) -> None:
        digest = hashlib.sha256(data).digest()
        if artefacts.find_artefact(self._database, digest) is None:
            artefacts.write_artefact(self._database, digest, len(data), io.BytesIO(data), None)

    def entries(self, trial_id: str) -> Iterator[Entry]:
        """Stream the entries of a trial, oldest first.

        Raises:
            UsageError: there is no such trial.
            TamperError: a row does not match its seal, is no entry, or one before it is missing.
        """
        self._get(trial_id)
        where = "WHERE trial_id = ? ORDER BY number"
        rows = read_rows(self._database, StoredEntry, where, (trial_id,))
        for number, row in enumerate(rows):
            if row.number != number:
                raise TamperError(f"entry {number} of trial {trial_id} is missing")
            yield parse_entry(row)

    def list_trials(self) -> list[TrialRow]:
        """List the trials, newest last."""
        return [self._shown(row) for row in read_rows(self._database, StoredTrial, "ORDER BY id")]

    def get_trial(self, name: str) -> TrialRow:
        """Find one trial by its id or a unique prefix of it.

        Raises:
            UsageError: no trial, or several, begin so; they are named.
        """
        found = self._find(name)
        if found is not None:
            return self._shown(found)
        rows = [row for row in self.list_trials() if row.trial_id.startswith(name)]
        if len(rows) == 1:
            return rows[0]
        if rows:
            names = ", ".join(row.trial_id for row in rows[:5])
            raise UsageError(f"{quote(name)} begins the id of {len(rows)} trials", hint=names)
        raise UsageError(f"no trial {quote(name)}", hint="`redrive trial run PLAN` begins one")

    def get_plan(self, trial_id: str) -> bytes:
        """Give the document that the trial was created with.

        Raises:
            UsageError: there is no such trial.
            TamperError: it is damaged.
        """
        return unpack_plan(self._get(trial_id))

    def get_answer(self, sha256: str) -> bytes:
        """Give an answer that an entry names.

        Raises:
            StoreError: it is not stored.
            TamperError: it is damaged.
        """
        with artefacts.open_artefact(self._database, bytes.fromhex(sha256)) as stream:
            return stream.read()

    def _find(self, trial_id: str) -> StoredTrial | None:
        return find_row(self._database, StoredTrial, "WHERE trial_id = ?", (trial_id,))

    def _get(self, trial_id: str) -> StoredTrial:
        row = self._find(trial_id)
        if row is None:
            raise UsageError(f"no trial {quote(trial_id)}")
        return row

    def _count(self, trial_id: str) -> int:
        sql = "SELECT coalesce(max(number) + 1, 0) FROM trial_entries WHERE trial_id = ?"
        found = self._database.find(sql, (trial_id,))
        return int(found[0]) if found else 0

    def _shown(self, row: StoredTrial) -> TrialRow:
        n_entries = self._count(row.trial_id)
        return TrialRow(row.trial_id, row.plan_digest, row.created_ns, row.size, n_entries)


def parse_entry(row: StoredEntry) -> Entry:
    """Read the entry of a row.

    Raises:
        TamperError: it is none, or of another number than the row.
    """
    try:
        entry = _parse(row.entry, Entry)
    except (msgspec.DecodeError, ValueError) as error:
        what = f"entry {row.number} of trial {row.trial_id} is damaged: {error}"
        raise TamperError(what) from error
    if entry.number != row.number:
        what = f"entry {row.number} of trial {row.trial_id} calls itself {entry.number}"
        raise TamperError(what)
    return entry


def _parse(data: bytes, kind: type[_T]) -> _T:
    """Read JSON that may hold lone surrogates, as names of files do: strict decoders refuse them.

    Raises:
        msgspec.DecodeError, ValueError: it is none of that kind.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.convert(_members(data, _RAW[kind]), kind)


def _members(data: bytes, raw: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in canonical.split_object(data):
        below = raw.get(name)
        if below is Raw:
            found[name] = Raw(value)
        else:
            found[name] = _members(value, below) if below else canonical.decode_value(value)
    return found


def artefacts_of(entry: Entry) -> tuple[str, ...]:
    """List the artefacts (sha256, hex) that an entry rests on."""
    match entry.fact:
        case Settled(answer_sha256=str(digest)):
            return (digest,)
        case Finished(end=end) if end.files_artefact is not None:
            return (end.files_artefact,)
        case _:
            return ()


def rewrite_trial_tables(
    database: Database, redact: Callable[[bytes], bytes], holds: Callable[[bytes], bool]
) -> tuple[TrialChanges, set[str]]:
    """Redact plans, ends of runs, judgements and reasons; forget kept files that hold a secret.

    What is left of a ledger folds to the same money and the same runs. A run that is made again
    asks and pays anew for an answer that was forgotten.

    Args:
        database: inside a transaction.
        redact: takes JSON; gives the same object where there is nothing to redact.
        holds: says whether a kept file (an answer, an archive of a run's files) holds a secret.

    Returns:
        What changed, and the artefacts (sha256, hex) that no entry may rest on any more.
    """
    dropped: set[str] = set()

    def plan(row: StoredTrial) -> StoredTrial:
        document = unpack_plan(row)
        new = redact(document)
        if new is document:
            return row
        data = zstandard.ZstdCompressor(level=3).compress(new)
        return replace(row, size=len(new), document=data)

    def entry(row: StoredEntry) -> StoredEntry:
        old = parse_entry(row)
        dropped.update(name for name in _named_by(old) if _holds(database, name, holds))
        new = _redacted(old, redact, dropped)
        return row if new is old else replace(row, entry=canonical.encode(new))

    plans = rewrite_rows(database, StoredTrial, plan)
    entries = rewrite_rows(database, StoredEntry, entry)
    return TrialChanges(plans, entries, len(dropped)), dropped


def _named_by(entry: Entry) -> set[str]:
    """List the digests that an entry names; a judgement names what it was asked and answered."""
    names = set(artefacts_of(entry))
    if isinstance(entry.fact, Graded):
        names.update(found.decode() for found in _DIGEST.findall(bytes(entry.fact.result)))
    return names


def _holds(database: Database, name: str, holds: Callable[[bytes], bool]) -> bool:
    if artefacts.find_artefact(database, bytes.fromhex(name)) is None:
        return False
    with artefacts.open_artefact(database, bytes.fromhex(name)) as stream:
        return holds(stream.read())


def _redacted(entry: Entry, redact: Callable[[bytes], bytes], dropped: set[str]) -> Entry:
    """Redact an entry; the same object is given where nothing changes."""
    fact = entry.fact
    match fact:
        case Settled(answer_sha256=str(name)) if name in dropped:
            return replace(entry, fact=replace(fact, answer_sha256=None))
        case Finished():
            data = canonical.encode(fact.end)
            new = redact(data)
            end = fact.end if new is data else _parse(new, EpisodeEnd)
            if end.files_artefact in dropped:
                end = replace(end, files_artefact=None)
            return entry if end is fact.end else replace(entry, fact=replace(fact, end=end))
        case Graded():
            result = bytes(fact.result)
            new = redact(result)
            return entry if new is result else replace(entry, fact=replace(fact, result=Raw(new)))
        case Stopped():
            data = canonical.encode([fact.reason])
            new = redact(data)
            reason = fact.reason if new is data else canonical.decode_value(new)[0]
            return entry if new is data else replace(entry, fact=replace(fact, reason=reason))
        case _:
            return entry


def unpack_plan(row: StoredTrial) -> bytes:
    """Give the document of a trial's row.

    Raises:
        TamperError: it is damaged.
    """
    try:
        if zstandard.frame_content_size(row.document) != row.size:
            raise TamperError(f"the plan of trial {row.trial_id} is damaged: it has another size")
        return zstandard.ZstdDecompressor().decompress(row.document)
    except zstandard.ZstdError as error:
        raise TamperError(f"the plan of trial {row.trial_id} is damaged: {error}") from error
